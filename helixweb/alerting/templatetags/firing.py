"""Unacknowledged alerts, for pages about serving."""

from django import template

from helixweb.alerting.models import Alert
from helixweb.alerting.services import unattended
from helixweb.inventory.models import Cluster

register = template.Library()


@register.simple_tag
def unattended_alerts(cluster: Cluster) -> list[Alert]:
    """The cluster's firing, unacknowledged alerts, the newest first."""
    return list(unattended(cluster.alerts.all()).select_related("rule"))
