"""Who this process is, and how it joins its cluster: by a token once, then by a credential.

The data directory keeps it, so that a restart makes no second node.
"""

import asyncio
import logging
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from runtime.backoff import Backoff
from runtime.membership.hardware import machine_name
from runtime.platforms import AlreadyLocked, lock_file
from runtime.protocol.complaints import StartRefused, complaint, first_complaint
from runtime.protocol.control import (
    AgentIdentity,
    RegisterReply,
    RegisterRequest,
    Role,
)
from runtime.protocol.message import Message
from runtime.transport.zmq_sockets import KeyPair
from runtime.web_client import ServerRefused, WebClient, WebError
from runtime.whole_file import write_whole

MessageT = TypeVar("MessageT", bound=BaseModel)

IDENTITY_FILE = "identity.json"
KEY_FILE = "curve.key"
DESIRED_FILE = "desired.json"
PLAN_FILE = "plan.json"
LOCK_FILE = "lock"

_REMEDIES = {
    IDENTITY_FILE: "delete it and join again with a fresh token",
    DESIRED_FILE: "going on without it, helixweb will say again what is wanted",
    PLAN_FILE: "going on without it, helixweb will say again what is wanted",
}

logger = logging.getLogger(__name__)


class DataDirError(StartRefused):
    """A data directory that cannot be used; the message names it and the remedy."""


class Membership(RegisterReply):
    """What registration gave: the name in the cluster, and the credential of this process."""


class Identity(Message):
    """`data_port` is where data frames come in; kept, since peers are told it."""

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

    @contextmanager
    def disk_errors(self) -> Iterator[None]:
        """Raises DataDirError for what the system says of the directory's files."""
        try:
            yield
        except OSError as error:
            raise DataDirError(
                f"{self._path} cannot be used: {error}; repair that (free disk space, or give this "
                "user the right to it), or choose another --data-dir"
            ) from error

    @property
    def key_file(self) -> Path:
        """Where the CURVE secret key is."""
        return self._path / KEY_FILE

    def load_keys(self) -> KeyPair:
        """The CURVE keys of this process, made at its first start. Raises DataDirError."""
        with self.disk_errors():
            return KeyPair.load_or_create(self.key_file)

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
        with self.disk_errors():
            lock = (self._path / LOCK_FILE).open("w")
        with lock:
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
        """Durable when it returns; a start with the same needs no room. Raises DataDirError."""
        with self.disk_errors():
            if self._read(Identity, IDENTITY_FILE) != identity:
                self._write(IDENTITY_FILE, identity)

    def load_wanted(self, kind: type[MessageT], file: str) -> MessageT | None:
        """What was wanted in the last run; a damaged one is forgotten, as it comes again."""
        try:
            return self._read(kind, file)
        except DataDirError as error:
            logger.warning("%s", error)
            return None

    def save_wanted(self, file: str, wanted: BaseModel) -> None:
        """Remember it for a start while helixweb is down. Raises OSError."""
        self._write(file, wanted)

    def _read(self, kind: type[MessageT], name: str) -> MessageT | None:
        path = self._path / name
        with self.disk_errors():
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


class JoinRefused(StartRefused):
    """This process cannot join as it was started; the message says why and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Applicant:
    """What a process asks for: its role, name and region. `join_token` is needed once.

    Without a name it is called as its host, by the site with a number behind it if that is taken;
    `name_suffix` follows either. `machine_uuid`: see RegisterRequest.
    """

    role: Role
    name: str | None
    name_suffix: str = ""
    machine_uuid: str | None = None
    region: str
    join_token: str | None
    announcement: AgentIdentity

    @property
    def full_name(self) -> str:
        """What the node is to be called, with its suffix."""
        return "-".join(filter(None, (self.name or machine_name(), self.name_suffix)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """`is_announced`: helixweb knows what this process is since this start."""

    member: Membership
    is_announced: bool


async def join(
    web: WebClient,
    data_dir: DataDir,
    identity: Identity,
    applicant: Applicant,
    *,
    rng: random.Random,
) -> Joined:
    """Announce a known process, register a new one; sets the credential of `web`.

    A new one waits for a server that is down; a member may go on without. Raises JoinRefused.
    """
    member = identity.membership
    if member is None:
        return await _register(web, data_dir, identity, applicant, rng=rng)
    _check_name(member, applicant)
    web.credential = member.credential
    try:
        await web.announce(applicant.announcement)
    except WebError as error:
        if not isinstance(error, ServerRefused) or not error.is_final:
            logger.warning("%s; going on as %s of the last run", error, member.name)
            return Joined(member=member, is_announced=False)
        if not error.is_unknown:
            raise JoinRefused(str(error)) from error
        if applicant.join_token is None:
            raise JoinRefused(
                f"{error.detail or error.title} (start again with --token)"
            ) from error
        logger.warning("the credential is not known any more; joining with the token")
        return await _register(web, data_dir, identity, applicant, rng=rng)
    return Joined(member=member, is_announced=True)


async def _register(
    web: WebClient,
    data_dir: DataDir,
    identity: Identity,
    applicant: Applicant,
    *,
    rng: random.Random,
) -> Joined:
    if applicant.join_token is None:
        raise JoinRefused(
            "this data directory has not joined a cluster yet; copy the join command with --token "
            "from the cluster's page"
        )
    try:
        request = RegisterRequest(
            join_token=applicant.join_token,
            role=applicant.role,
            node_uuid=identity.node_uuid,
            machine_uuid=applicant.machine_uuid,
            name=applicant.full_name,
            may_rename=applicant.name is None,
            region=applicant.region,
            **dict(applicant.announcement),
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = "-".join(str(part) for part in first["loc"])
        raise JoinRefused(f"--{field} {first['input']!r}: {complaint(first)}") from error
    web.credential = None
    backoff = Backoff(rng=rng)
    while True:
        try:
            reply = await web.register(request)
            break
        except WebError as error:
            if isinstance(error, ServerRefused) and error.is_final:
                raise JoinRefused(error.detail or str(error)) from error
            wait_s = backoff.next_s()
            logger.warning("cannot join yet: %s; again in %.1f s", error, wait_s)
            await asyncio.sleep(wait_s)
    member = Membership(**dict(reply))
    data_dir.save_identity(identity.model_copy(update={"membership": member}))
    logger.info("joined cluster %s as %s", member.cluster, member.name)
    return Joined(member=member, is_announced=True)


def _check_name(member: Membership, applicant: Applicant) -> None:
    if applicant.name is not None and applicant.full_name != member.name:
        raise JoinRefused(
            f"this data directory belongs to {member.name!r} of cluster {member.cluster!r}; start "
            f"it with --name {member.name}, or join as {applicant.name!r} from another --data-dir"
        )
