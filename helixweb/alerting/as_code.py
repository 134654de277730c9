"""Alert rules in the inventory's file.

Files contain no channels: their addresses often hold a key. An import leaves a rule's channels
unchanged; a new rule notifies all.
"""

from collections.abc import Sequence

from django.utils import timezone

from helixweb.alerting.models import AlertRule, Evaluation
from helixweb.inventory.as_code.documents import Kind
from helixweb.inventory.models import Cluster


def _added(rows: Sequence[AlertRule]) -> None:
    """Mark clusters as evaluated, so that they get no default rules beside those of the file."""
    for cluster in {row.cluster_id for row in rows}:
        Evaluation.unscoped.get_or_create(cluster_id=cluster, defaults={"at": timezone.now()})


ALERT_RULES = Kind(
    section="alert_rules",
    row=AlertRule,
    added=_added,
    # A cluster that was never evaluated has no rules yet, and gets the default ones.
    clusters=lambda: Cluster.unscoped.filter(alert_evaluation__isnull=False),
)
