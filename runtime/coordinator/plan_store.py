"""What the coordinator must remember to serve while helixweb is down: the last desired state."""

import os
from pathlib import Path

from pydantic import ValidationError

from runtime.protocol.control import CoordinatorDesired


class PlanStoreError(Exception):
    """A stored plan that cannot be read."""


class PlanStore:
    """One JSON file, replaced whole, readable by its owner only."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> CoordinatorDesired | None:
        """None when nothing was stored yet. Raises PlanStoreError for a file that is not ours."""
        try:
            return CoordinatorDesired.model_validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise PlanStoreError(
                f"{self._path} is not a stored plan of this version "
                f"({'.'.join(map(str, first['loc']))}: {first['msg']}); delete it, the plan comes "
                "again from helixweb"
            ) from error

    def save(self, desired: CoordinatorDesired) -> None:
        """Durable when it returns: after a crash there is the old state or the new."""
        new = self._path.with_suffix(".new")
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(desired.model_dump_json().encode())
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path)
