"""What the coordinator must remember to serve while helixweb is down: the last desired state, and
which plan served when it came."""

from pathlib import Path

from pydantic import ValidationError

from runtime.protocol.complaints import first_complaint
from runtime.protocol.control import CoordinatorDesired, ServingPlan
from runtime.whole_file import write_whole

DESIRED_FIELDS = frozenset(CoordinatorDesired.model_fields)


class PlanStoreError(Exception):
    """A stored plan that cannot be read."""


class Stored(CoordinatorDesired):
    """`before`: the plan that served when this became desired, if it may still do so."""

    before: ServingPlan | None = None

    @property
    def desired(self) -> CoordinatorDesired:
        return CoordinatorDesired(**{name: getattr(self, name) for name in DESIRED_FIELDS})


class PlanStore:
    """Owns the file with the last plan; the plan follower reads and writes it.

    One JSON file, replaced whole, readable by its owner only.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> Stored | None:
        """None when nothing was stored yet. Raises PlanStoreError for a file that is not ours."""
        try:
            return Stored.model_validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError as error:
            raise PlanStoreError(
                f"{self._path} is not a stored plan of this version "
                f"({first_complaint(error)}); delete it, the plan "
                "comes again from helixweb"
            ) from error

    def save(self, desired: CoordinatorDesired, *, before: ServingPlan | None = None) -> None:
        """Durable when it returns: after a crash there is the old state or the new."""
        fields = {name: getattr(desired, name) for name in DESIRED_FIELDS}
        stored = Stored(**fields, before=before)
        write_whole(self._path, stored.model_dump_json().encode())
