"""How a process gets into its cluster: with a join token once, with its credential ever after."""

import asyncio
import logging
import random
from dataclasses import dataclass

from pydantic import ValidationError

from runtime.backoff import Backoff
from runtime.membership.hardware import machine_name
from runtime.membership.identity import DataDir, Identity, Membership
from runtime.protocol.complaints import StartRefused, complaint
from runtime.protocol.control import AgentIdentity, RegisterRequest, Role
from runtime.web_client import ServerRefused, WebClient, WebError

logger = logging.getLogger(__name__)


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
