"""Alert rules in the inventory's file.

Channels are in no file: their addresses often hold a key. Which of them a rule tells stays as it
is; a new rule tells all.
"""

from collections.abc import Sequence

from django.utils import timezone

from helixweb.alerting.models import AlertRule, Evaluation
from helixweb.inventory.as_code.kinds import Kind
from helixweb.inventory.models import Cluster


def _added(rows: Sequence[AlertRule]) -> None:
    """A cluster whose rules a file declares gets no usual ones beside them."""
    for cluster in {row.cluster_id for row in rows}:
        Evaluation.unscoped.get_or_create(cluster_id=cluster, defaults={"at": timezone.now()})


ALERT_RULES = Kind(
    section="alert_rules",
    row=AlertRule,
    added=_added,
    # Before a cluster was first looked at it has no rules, and is about to get the usual ones.
    clusters=lambda: Cluster.unscoped.filter(alert_evaluation__isnull=False),
)
