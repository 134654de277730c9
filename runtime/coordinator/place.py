"""Where a coordinator is reached: by chat clients, by stages, and under which identity."""

import logging
import socket
import uuid
from dataclasses import dataclass

from planner.domain.cluster import COORDINATOR
from runtime.coordinator.options import Options
from runtime.coordinator.shared_port import PrivateSocket, choose_data_port, clients_url, with_hosts
from runtime.http_process import listen
from runtime.membership.data_address import data_endpoint
from runtime.membership.hardware import detect_hardware
from runtime.membership.identity import DataDir, Identity
from runtime.protocol.addresses import bracketed
from runtime.protocol.control import AgentIdentity
from runtime.transport.zmq_sockets import KeyPair
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
    keys = KeyPair.load_or_create(data_dir.key_file)
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
