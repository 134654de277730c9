"""How every ZeroMQ socket of the data plane is set up, and the keys by which peers may connect.

Each process that sends or receives data frames has one CURVE key pair.
"""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import zmq
from zmq.auth.thread import ThreadAuthenticator

from runtime.protocol.complaints import StartRefused
from runtime.protocol.control import PeerAddress
from runtime.protocol.data import FrameError
from runtime.protocol.data_security import DataSecurity
from runtime.protocol.link_frames import Ack, Echo, decode_link_frame
from runtime.transport.receive_stream import MAX_PAYLOAD_BYTES
from runtime.whole_file import write_whole

logger = logging.getLogger(__name__)

HEARTBEAT_INTERVAL_MS = 190
HEARTBEAT_TIMEOUT_MS = 1500
HEARTBEAT_TTL_MS = 2000
# A refused peer is not told; it dials again after this long (libzmq's default is 30 s).
HANDSHAKE_INTERVAL_MS = 2000
# A firewall that drops packets answers nothing, and the kernel asks again at growing intervals
# (25 s and more after a minute). So an attempt is given up and begun again: a link is back within
# the sum of both once the firewall opens.
CONNECT_TIMEOUT_MS = 1000
RECONNECT_INTERVAL_MAX_MS = 500
ZAP_DOMAIN = "helixweb"
# Messages that may wait to be read from one connection. libzmq 4.3 aborts the process if heartbeats
# close a connection that waits for its reader (zeromq/libzmq issue 3937). So many never wait where
# something dials, and where something listens heartbeats are answered only.
_MOST_UNREAD = 10_000

AnswerT = TypeVar("AnswerT", Ack, Echo)


class KeyFileError(StartRefused, ValueError):
    """A key file that does not hold a CURVE secret key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPair:
    """Both keys as z85 text of 40 characters."""

    public_key: str
    secret_key: str = field(repr=False)

    @classmethod
    def generate(cls) -> "KeyPair":
        public, secret = zmq.curve_keypair()
        return cls(public_key=public.decode(), secret_key=secret.decode())

    @classmethod
    def from_secret(cls, secret: str) -> "KeyPair":
        """Raises KeyFileError when `secret` is no z85 key."""
        try:
            public = zmq.curve_public(secret.encode())
        except (ValueError, zmq.ZMQError) as error:
            raise KeyFileError(f"not a CURVE secret key of 40 z85 characters: {error}") from error
        return cls(public_key=public.decode(), secret_key=secret)

    @classmethod
    def load(cls, path: Path) -> "KeyPair":
        """Read a secret key file. Raises KeyFileError naming the file."""
        try:
            return cls.from_secret(path.read_text().strip())
        except (OSError, UnicodeDecodeError, KeyFileError) as error:
            raise KeyFileError(
                f"{path} holds no usable key ({error}); delete it and join the machine again"
            ) from error

    @classmethod
    def load_or_create(cls, path: Path) -> "KeyPair":
        """The key kept in `path`, made with mode 0600 on first use."""
        if path.exists():
            return cls.load(path)
        keys = cls.generate()
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, keys.secret_key.encode())
        return keys


class BindFailed(StartRefused, OSError):
    """The address to bind is taken or not ours."""


class Peers:
    """The peers of the moment, by name and by key; asked by the authenticator's thread.

    `passwords`, for networks in clear: a peer says its key and that of whom it dials, which is
    `public_key`. That tells peers apart and keeps those of other deployments out, no more.
    """

    def __init__(self, peers: Iterable[PeerAddress], *, public_key: str) -> None:
        self.by_name: dict[str, PeerAddress] = {}
        self.name_of_key: dict[str, str] = {}
        self.passwords: dict[str, dict[str, str]] = {}  # as pyzmq looks them up, by domain
        self._public_key = public_key
        self.replace(peers)

    def replace(self, peers: Iterable[PeerAddress]) -> None:
        by_name = {peer.name: peer for peer in peers}
        self.name_of_key = {peer.public_key: name for name, peer in by_name.items()}
        self.passwords[ZAP_DOMAIN] = dict.fromkeys(self.name_of_key, self._public_key)
        self.by_name = by_name

    def callback(self, domain: str, key: bytes) -> bool:
        """pyzmq's credentials provider: may the owner of this key (z85) connect?"""
        return key.decode() in self.name_of_key


class RetryingAuthenticator(ThreadAuthenticator):
    """Refuses with ZAP status 300, after which the peer dials again; after 400 it never would."""

    def admit(self, peers: Peers) -> None:
        """Exactly these from now on, whoever they are at the moment."""
        self.configure_curve_callback(domain=ZAP_DOMAIN, credentials_provider=peers)
        self.passwords = peers.passwords

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
    context: zmq.Context[Any],
    *,
    bind: str,
    keys: KeyPair,
    security: DataSecurity,
    most_waiting: int,
) -> Any:
    """The ROUTER that peers dial. Raises BindFailed."""
    router = _socket(context, zmq.ROUTER, most_waiting, endpoint=bind)
    if security is DataSecurity.CURVE:
        _set_keys(router, keys)
        router.curve_server = True
    else:
        router.plain_server = True
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
    context: zmq.Context[Any],
    address: PeerAddress,
    *,
    keys: KeyPair,
    security: DataSecurity,
    most_waiting: int,
) -> Any:
    """A DEALER for `address`, which it is yet to be connected to: one lane, on which up to
    `most_waiting` wait to be sent."""
    dealer = _socket(context, zmq.DEALER, most_waiting, endpoint=address.endpoint)
    dealer.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_INTERVAL_MS)
    dealer.setsockopt(zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS)
    dealer.setsockopt(zmq.HEARTBEAT_TTL, HEARTBEAT_TTL_MS)
    if security is DataSecurity.CURVE:
        _set_keys(dealer, keys)
        dealer.curve_serverkey = address.public_key.encode()
    else:
        dealer.plain_username = keys.public_key.encode()
        dealer.plain_password = address.public_key.encode()
    return dealer


def answers(dealer: Any, kind: type[AnswerT], *, peer: str) -> Iterator[AnswerT]:
    """What was answered on a sending socket; other frames than of `kind` are logged and dropped."""
    while dealer.getsockopt(zmq.EVENTS) & zmq.POLLIN:
        frames = dealer.recv_multipart(zmq.NOBLOCK)
        try:
            answer = decode_link_frame(frames[0])
            if not isinstance(answer, kind):
                raise FrameError(f"{type(answer).__name__} where only {kind.__name__} comes back")
        except FrameError as error:
            logger.warning("dropped what %s answered: %s", peer, error)
        else:
            yield answer


def _set_keys(socket: Any, keys: KeyPair) -> None:
    socket.curve_publickey = keys.public_key.encode()
    socket.curve_secretkey = keys.secret_key.encode()


def _socket(context: zmq.Context[Any], kind: int, most_waiting: int, *, endpoint: str) -> Any:
    socket = context.socket(kind)
    # Only for an IPv6 address: names would prefer it, although their machine may listen on IPv4.
    socket.setsockopt(zmq.IPV6, int(endpoint.startswith("tcp://[")))
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.SNDHWM, most_waiting)
    socket.setsockopt(zmq.RCVHWM, _MOST_UNREAD)
    socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_INTERVAL_MS)
    socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
    socket.setsockopt(zmq.RECONNECT_IVL, 50)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_INTERVAL_MAX_MS)
    socket.setsockopt(zmq.CONNECT_TIMEOUT, CONNECT_TIMEOUT_MS)
    return socket
