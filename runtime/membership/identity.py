"""Who this process is, kept in its data directory so that a restart makes no second node."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from runtime.platforms import AlreadyLocked, lock_file
from runtime.protocol.complaints import StartRefused, first_complaint
from runtime.protocol.control import DesiredState
from runtime.whole_file import write_whole

MessageT = TypeVar("MessageT", bound=BaseModel)

IDENTITY_FILE = "identity.json"
KEY_FILE = "curve.key"
DESIRED_FILE = "desired.json"
LOCK_FILE = "lock"

_REMEDIES = {
    IDENTITY_FILE: "delete it and join again with a fresh token",
    DESIRED_FILE: "going on without it, helixweb will say again what is wanted",
}

logger = logging.getLogger(__name__)


class DataDirError(StartRefused):
    """A data directory that cannot be used; the message names it and the remedy."""


class Membership(BaseModel):
    """What registration gave: the name in the cluster, and the credential of this process."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    cluster: str
    credential: str = Field(repr=False)
    heartbeat_interval_s: float = Field(gt=0)


class Identity(BaseModel):
    """`data_port` is where data frames come in; kept, since peers are told it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    node_uuid: str
    data_port: int | None = None
    membership: Membership | None = None


class DataDir:
    """Owns the data directory of one process; agent and coordinator read and write it.

    The files of one process. All are readable by their owner alone and replaced whole.
    """

    def __init__(self, path: Path) -> None:
        """Makes the directory. Raises DataDirError."""
        self._path = path
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise DataDirError(f"cannot make {path}: {error}; choose another --data-dir") from error

    @property
    def key_file(self) -> Path:
        """Where the CURVE secret key is."""
        return self._path / KEY_FILE

    @property
    def stage_log(self) -> Path:
        """What the stage process wrote to stderr."""
        return self._path / "stage.log"

    @property
    def vllm_facts(self) -> Path:
        """What vLLM said that it can run on this machine."""
        return self._path / "vllm-facts.json"

    @property
    def weights(self) -> Path:
        """Weights that were fetched, unless another folder was chosen."""
        return self._path / "weights"

    @property
    def instances(self) -> Path:
        """Logs and process ids of whole-model instances."""
        return self._path / "instances"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """While inside, no other process uses this directory. Raises DataDirError."""
        with (self._path / LOCK_FILE).open("w") as lock:
            try:
                lock_file(lock)
            except AlreadyLocked as error:
                raise DataDirError(
                    f"{self._path} is in use by another process; stop it or choose another "
                    "--data-dir"
                ) from error
            yield

    def load_identity(self, *, fresh_uuid: str) -> Identity:
        """What was saved, or a fresh identity. Raises DataDirError."""
        return self._read(Identity, IDENTITY_FILE) or Identity(node_uuid=fresh_uuid)

    def save_identity(self, identity: Identity) -> None:
        """Durable when it returns."""
        self._write(IDENTITY_FILE, identity)

    def load_desired(self) -> DesiredState | None:
        """The desired state of the last run; a damaged one is forgotten, as it comes again."""
        try:
            return self._read(DesiredState, DESIRED_FILE)
        except DataDirError as error:
            logger.warning("%s", error)
            return None

    def save_desired(self, desired: DesiredState) -> None:
        """Remember it for a start while helixweb is down."""
        self._write(DESIRED_FILE, desired)

    def _read(self, kind: type[MessageT], name: str) -> MessageT | None:
        path = self._path / name
        try:
            return kind.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError as error:
            raise DataDirError(
                f"{path} is damaged ({first_complaint(error)}); {_REMEDIES[name]}"
            ) from error

    def _write(self, name: str, content: BaseModel) -> None:
        write_whole(self._path / name, content.model_dump_json(indent=2).encode())
