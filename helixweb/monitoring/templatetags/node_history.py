"""What a node's page shows of its last minutes: {% load node_history %}."""

from django import template
from django.utils import timezone

from helixweb.inventory.models import Node
from helixweb.monitoring.node_history import NodeHistory
from helixweb.monitoring.node_history import node_history as history_of

register = template.Library()


@register.simple_tag
def node_history(node: Node) -> NodeHistory:
    return history_of(node, now=timezone.now())
