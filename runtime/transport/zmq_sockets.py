"""How every ZeroMQ socket of the data plane is set up, and who may connect to one."""

from collections.abc import Iterable
from typing import Any

import zmq
from zmq.auth.thread import ThreadAuthenticator

from runtime.protocol.control import PeerAddress
from runtime.transport.keys import KeyPair
from runtime.transport.reassembly import MAX_PAYLOAD_BYTES

HEARTBEAT_INTERVAL_MS = 500
HEARTBEAT_TIMEOUT_MS = 1500
HEARTBEAT_TTL_MS = 2000
# A refused peer is not told; it dials again after this long (libzmq's default is 30 s).
HANDSHAKE_INTERVAL_MS = 2000
ZAP_DOMAIN = "helixweb"


class BindFailed(OSError):
    """The address to bind is taken or not ours."""


class Peers:
    """The peers of the moment, by name and by key; asked by the authenticator's thread."""

    def __init__(self, peers: Iterable[PeerAddress]) -> None:
        self.by_name: dict[str, PeerAddress] = {}
        self.name_of_key: dict[str, str] = {}
        self.replace(peers)

    def replace(self, peers: Iterable[PeerAddress]) -> None:
        by_name = {peer.name: peer for peer in peers}
        self.name_of_key = {peer.public_key: name for name, peer in by_name.items()}
        self.by_name = by_name

    def callback(self, domain: str, key: bytes) -> bool:
        """pyzmq's credentials provider: may the owner of this key (z85) connect?"""
        return key.decode() in self.name_of_key


class RetryingAuthenticator(ThreadAuthenticator):
    """Refuses with ZAP status 300, after which the peer dials again; after 400 it never would."""

    def _send_zap_reply(
        self,
        request_id: bytes,
        status_code: bytes,
        status_text: bytes,
        user_id: str = "anonymous",
    ) -> None:
        code = b"300" if status_code == b"400" else status_code
        super()._send_zap_reply(request_id, code, status_text, user_id)


def receiving_socket(
    context: zmq.Context[Any], *, bind: str, keys: KeyPair, most_waiting: int
) -> Any:
    """The ROUTER that peers dial. Raises BindFailed."""
    router = _socket(context, zmq.ROUTER, keys, most_waiting)
    router.curve_server = True
    router.zap_domain = ZAP_DOMAIN.encode()
    # Without this libzmq admits everyone whenever no authenticator answers.
    router.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
    router.setsockopt(zmq.MAXMSGSIZE, MAX_PAYLOAD_BYTES)
    try:
        router.bind(bind)
    except zmq.ZMQError as error:
        router.close(linger=0)
        raise BindFailed(
            f"cannot listen on {bind}: {error}; choose a free port of this machine"
        ) from error
    return router


def sending_socket(
    context: zmq.Context[Any], address: PeerAddress, *, keys: KeyPair, most_waiting: int
) -> Any:
    """A DEALER that dials `address`: one lane."""
    dealer = _socket(context, zmq.DEALER, keys, most_waiting)
    dealer.curve_serverkey = address.public_key.encode()
    dealer.connect(address.endpoint)
    return dealer


def _socket(context: zmq.Context[Any], kind: int, keys: KeyPair, most_waiting: int) -> Any:
    socket = context.socket(kind)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.SNDHWM, most_waiting)
    socket.setsockopt(zmq.RCVHWM, most_waiting)
    socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_INTERVAL_MS)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS)
    socket.setsockopt(zmq.HEARTBEAT_TTL, HEARTBEAT_TTL_MS)
    socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_INTERVAL_MS)
    socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
    socket.setsockopt(zmq.RECONNECT_IVL, 50)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)
    socket.curve_publickey = keys.public_key.encode()
    socket.curve_secretkey = keys.secret_key.encode()
    return socket
