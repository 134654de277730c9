"""Template tags of metrics: {% load monitoring %}{{ seconds|p95_note }} …"""

from typing import Any

from django import template
from django.utils import timezone

from helixweb.deployment.models import Deployment
from helixweb.inventory.models import Node
from helixweb.inventory.templatetags.quantities import duration
from helixweb.monitoring.history import FIELDS
from helixweb.monitoring.history_view import node_history as history_of
from helixweb.monitoring.moment import Moment, finding_of

register = template.Library()


@register.filter
def p95_note(seconds: float | None) -> str:
    """The note under a tile that shows the median."""
    return f"p50; p95 {duration(seconds)}"


@register.simple_tag
def node_history(node: Node) -> dict[str, Any]:
    """The last minutes of a node."""
    return history_of(node, now=timezone.now())


@register.simple_tag
def serving_now(deployment: Deployment) -> dict[str, Any]:
    """Context of the newest report on the generation of `deployment`: `numbers`, None each while
    nothing is reported, and the `finding`, None then, too."""
    moment = Moment(deployment.cluster, timezone.now())
    sample = moment.sample
    if sample is None or sample.generation != deployment.generation or sample.simulated:
        return {"numbers": dict.fromkeys(FIELDS), "finding": None}
    return {"numbers": moment.numbers, "finding": finding_of(moment)}
