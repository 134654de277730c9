"""Where a coordinator is reached: by chat clients, by stages, and under which identity."""

import logging
import socket
import uuid
from dataclasses import dataclass, replace

from planner.domain.cluster import COORDINATOR
from runtime.coordinator.options import Options
from runtime.coordinator.shared_port import PrivateSocket
from runtime.http_process import listen
from runtime.membership.data_address import check_host, choose_host, choose_port, data_endpoint
from runtime.membership.hardware import detect_hardware
from runtime.membership.identity import DataDir, Identity
from runtime.protocol.addresses import bracketed, is_wildcard
from runtime.protocol.control import AgentIdentity
from runtime.protocol.data_security import DataSecurity
from runtime.transport.zmq_transport import AsyncZmqTransport

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """`shares_port`: stages come to the port of chat clients, which hands them on to `inner`."""

    identity: Identity
    announcement: AgentIdentity
    listener: socket.socket
    transport: AsyncZmqTransport
    shares_port: bool
    inner: PrivateSocket


def take_place(options: Options, data_dir: DataDir, inner: PrivateSocket) -> Place:
    """Listen where `options` say, and remember the ports. Raises what binding raises."""
    options = with_hosts(options)
    identity = data_dir.load_identity(fresh_uuid=str(uuid.uuid4()))
    keys = data_dir.load_keys()
    listener = listen(options.host, options.port)
    port: int = listener.getsockname()[1]
    data_port, shares_port = choose_data_port(options, clients_port=port, kept=identity.data_port)
    stages_url = data_endpoint(options.data_host, data_port)
    transport = AsyncZmqTransport(
        name=COORDINATOR,
        bind=inner.zmq_endpoint if shares_port else stages_url,
        keys=keys,
        security=options.data_security,
    )
    identity = identity.model_copy(update={"data_port": data_port})
    data_dir.save_identity(identity)
    announcement = AgentIdentity(
        hardware=detect_hardware(memory_budget_bytes=None, relative_speed=1.0, gpus=()),
        data_endpoint=data_endpoint(options.data_host, data_port, options.advertise),
        data_public_key=keys.public_key,
        http_url=clients_url(options, port),
    )
    logger.info("listening on http://%s:%d and %s", bracketed(options.host), port, stages_url)
    logger.info(
        "clients reach it at %s, stages at %s", announcement.http_url, announcement.data_endpoint
    )
    return Place(
        identity=identity,
        announcement=announcement,
        listener=listener,
        transport=transport,
        shares_port=shares_port,
        inner=inner,
    )


def with_hosts(options: Options) -> Options:
    """`options` with the addresses for chat clients and stages that follow from --server.

    Raises AddressError.
    """
    host = options.host or choose_host("", server=options.server, advertised=None)
    data_host = choose_host(
        options.data_host or ("" if is_wildcard(host) else host),
        server=options.server,
        advertised=options.advertise,
    )
    return replace(options, host=host, data_host=data_host)


def clients_url(options: Options, port: int) -> str:
    """Where chat clients reach the coordinator, unless an operator knows better."""
    host = options.host
    if is_wildcard(host):
        host = options.data_host if options.advertise is None else options.advertise.host
    return options.public_url or f"http://{bracketed(host)}:{port}"


def choose_data_port(options: Options, *, clients_port: int, kept: int | None) -> tuple[int, bool]:
    """The port for stages, and whether it is shared with chat clients, as wherever it can be.

    That is: where no other is wanted, or known to stages from earlier starts; clients are listened
    to at the same address and a port that stays; and who sends proves who it is by a secret.
    Raises AddressError.
    """
    is_of_all = is_wildcard(options.host) and (":" in options.host) == (":" in options.data_host)
    is_one_address = options.host == options.data_host or is_of_all
    is_proven = options.data_security is DataSecurity.CURVE
    may_share = is_one_address and is_proven and options.port != 0
    preferred = options.data_port or kept or clients_port
    if not may_share or preferred != clients_port:
        return choose_port(options.data_host, wanted=options.data_port, kept=kept), False
    check_host(options.data_host)
    return clients_port, True
