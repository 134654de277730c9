"""Alert rules in the inventory's file.

Channels are in no file: their addresses often hold a key. Which of them a rule tells stays as it
is; a new rule tells all.
"""

from collections.abc import Sequence

from django.utils import timezone
from django.utils.translation import gettext as _

from helixweb.alerting.models import AlertRule, Evaluation
from helixweb.inventory.as_code.kinds import Kind
from helixweb.inventory.cluster_names import ClusterNames
from helixweb.inventory.models import Cluster
from planner.domain.errors import InvalidProblem

_KEYS = ("name", "kind", "threshold", "clears_at", "for_s", "resolve_s", "severity", "enabled")


def _check(row: AlertRule, _names: ClusterNames) -> None:
    # Every process registers these rules, and few read a file of them.
    from helixweb.alerting.services import AlertingError, check

    try:
        check(row)
    except AlertingError as error:
        raise InvalidProblem(
            _("alert rule %(name)s: %(error)s") % {"name": repr(row.name), "error": error}
        ) from error


def _added(rows: Sequence[AlertRule]) -> None:
    """A cluster whose rules somebody declares gets no usual ones beside them."""
    for cluster in {row.cluster_id for row in rows}:
        Evaluation.unscoped.get_or_create(cluster_id=cluster, defaults={"at": timezone.now()})


ALERT_RULES = Kind(
    section="alert_rules",
    label="alert rule",
    row=AlertRule,
    keys=_KEYS,
    check=_check,
    added=_added,
    # Before a cluster was first looked at it has no rules, and is about to get the usual ones.
    clusters=lambda: Cluster.unscoped.filter(alert_evaluation__isnull=False),
)
