"""What the change log tells of deployments: what people and policies decide, not how far it is."""

from helixweb.deployment.models import Deployment
from helixweb.deployment.options import OPTION_NAMES
from helixweb.inventory.models import Change
from helixweb.inventory.services.change_log import Values, change_of

_COLUMNS = ("plan_id", "model_name", "generation", *OPTION_NAMES)


def values_told(row: Deployment) -> Values:
    """Not what it consists of: that is its plan's."""
    told = {name: getattr(row, name) for name in _COLUMNS}
    return {**told, "status": str(row.status), "paused": row.paused_at is not None}


def record_deployed(row: Deployment) -> None:
    """In the transaction that makes it."""
    _record(row, Change.Action.ADDED, before=None, after=values_told(row))


def record_change(row: Deployment, *, before: Values) -> None:
    """What differs, in the transaction that changes it."""
    _record(row, Change.Action.CHANGED, before=before, after=values_told(row))


def record_dismissed(row: Deployment, *, before: str, after: str) -> None:
    """Of a repair, in the transaction that ends it."""
    _record(row, Change.Action.CHANGED, before={"repair": before}, after={"repair": after})


def _record(
    row: Deployment, action: Change.Action, *, before: Values | None, after: Values
) -> None:
    line = change_of(row, action, before=before, after=after)
    if line is not None:
        line.name = row.model_name  # how it is called; its number stands beside
        line.save()
