"""ZeroMQ with CURVE: one ROUTER that receives, one DEALER per peer that sends.

Who sent a message is the public key its connection proved, never what the frame claims; a peer
whose key is not among ours does not get past the handshake.
"""

import logging
import math
from collections import Counter, deque
from collections.abc import Iterable
from typing import Any

import zmq
from zmq.auth.thread import ThreadAuthenticator

from runtime.protocol.control import PeerAddress
from runtime.protocol.data import FrameError, Message, decode, encode
from runtime.transport.base import PeerStalled, Received, UnknownPeer
from runtime.transport.keys import KeyPair

logger = logging.getLogger(__name__)

HEARTBEAT_INTERVAL_MS = 500
HEARTBEAT_TIMEOUT_MS = 1500
HEARTBEAT_TTL_MS = 2000
# A refused peer is not told; it dials again after this long (libzmq's default is 30 s).
HANDSHAKE_INTERVAL_MS = 2000
# Larger frames end the connection: 512 prompt tokens of a 16k-wide model in fp32 are 32 MiB.
MAX_FRAME_BYTES = 256 * 2**20
ZAP_DOMAIN = "helixweb"
# Messages that may wait for one peer, here and again there. Far more than the stages of a plan that
# works ever have under way; a peer that is away longer than these last makes `send` raise.
MAX_WAITING_MESSAGES = 10_000
# Messages taken in one call, so that a flood cannot keep the caller from its own work.
MAX_MESSAGES_PER_RECEIVE = 1000


class BindFailed(OSError):
    """The address to bind is taken or not ours."""


class _Peers:
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


class _RetryingAuthenticator(ThreadAuthenticator):
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


class ZmqTransport:
    """Implements `Transport`; `name` is ours, `bind` like tcp://127.0.0.1:9000 (port 0: any)."""

    def __init__(
        self,
        *,
        name: str,
        bind: str,
        keys: KeyPair,
        peers: Iterable[PeerAddress] = (),
    ) -> None:
        self._dropped: Counter[str] = Counter()
        self._name = name
        self._keys = keys
        self._peers = _Peers(peers)
        self._dealers: dict[str, zmq.Socket[bytes]] = {}
        self._to_self: deque[Message] = deque()
        self._closed = False
        self._context = zmq.Context()
        self._authenticator = _RetryingAuthenticator(self._context)
        self._authenticator.start()
        self._authenticator.configure_curve_callback(
            domain=ZAP_DOMAIN, credentials_provider=self._peers
        )
        self._router: zmq.Socket[bytes] = self._socket(zmq.ROUTER)
        self._router.curve_server = True
        self._router.zap_domain = ZAP_DOMAIN.encode()
        # Without this libzmq admits everyone whenever no authenticator answers.
        self._router.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
        self._router.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
        try:
            self._router.bind(bind)
        except zmq.ZMQError as error:
            self.close()
            raise BindFailed(
                f"cannot listen on {bind}: {error}; choose a free port of this machine"
            ) from error

    @property
    def endpoint(self) -> str:
        """Where we listen, the port filled in."""
        return self._router.getsockopt_string(zmq.LAST_ENDPOINT)

    @property
    def dropped_messages(self) -> int:
        """Frames that were not ours, or came from a peer that left, since the start."""
        return self._dropped.total()

    @property
    def receive_fd(self) -> int:
        """Turns readable when a message may be there; on edges only, so empty it first."""
        descriptor: int = self._router.getsockopt(zmq.FD)  # type: ignore[assignment]
        return descriptor

    def set_peers(self, peers: Iterable[PeerAddress]) -> None:
        """Replace the peers; connections to those that left or moved are closed."""
        before = dict(self._peers.by_name)
        self._peers.replace(peers)
        for name, address in before.items():
            if self._peers.by_name.get(name) != address and name in self._dealers:
                self._dealers.pop(name).close(linger=0)

    def send(self, peer: str, message: Message) -> None:
        """Never blocks: what a peer does not take yet waits in memory, in order, up to a bound."""
        if peer == self._name:
            self._to_self.append(message)
            return
        try:
            self._dealer(peer).send_multipart(encode(message), zmq.NOBLOCK, copy=False)
        except zmq.Again:
            raise PeerStalled(
                f"{MAX_WAITING_MESSAGES} messages wait for {peer!r} already; a "
                f"{message.kind.name} was not sent"
            ) from None

    def receive(self, *, timeout_s: float) -> list[Received]:
        """All that is there; waits up to `timeout_s` for the first. Bad frames are dropped."""
        if timeout_s > 0 and not self._to_self:
            self._router.poll(math.ceil(timeout_s * 1000))
        received = []
        while self._to_self:
            received.append(Received(sender=self._name, message=self._to_self.popleft()))
        while len(received) < MAX_MESSAGES_PER_RECEIVE:
            try:
                frames = self._router.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                break
            one = self._accept(frames)
            if one is not None:
                received.append(one)
        return received

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for dealer in self._dealers.values():
            dealer.close(linger=0)
        self._router.close(linger=0)
        self._authenticator.stop()
        self._context.term()

    def _accept(self, frames: list[zmq.Frame]) -> Received | None:
        key = str(frames[-1].get("User-Id"))
        sender = self._peers.name_of_key.get(key)
        if sender is None:  # left the peers after its handshake
            self._dropped[key] += 1
            return None
        try:
            if len(frames) != 3:
                raise FrameError(f"{len(frames) - 1} frames; a message has a head and a payload")
            message = decode(frames[1].buffer, frames[2].buffer)
        except FrameError as error:
            self._dropped[sender] += 1
            if self._dropped[sender] == 1:
                logger.warning("dropped a malformed message of peer %s: %s", sender, error)
            return None
        return Received(sender=sender, message=message)

    def _dealer(self, peer: str) -> "zmq.Socket[bytes]":
        dealer = self._dealers.get(peer)
        if dealer is None:
            address = self._peers.by_name.get(peer)
            if address is None:
                raise UnknownPeer(f"{peer!r} is not a peer of this deployment")
            dealer = self._socket(zmq.DEALER)
            dealer.curve_serverkey = address.public_key.encode()
            dealer.connect(address.endpoint)
            self._dealers[peer] = dealer
        return dealer

    def _socket(self, kind: int) -> Any:
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.SNDHWM, MAX_WAITING_MESSAGES)
        socket.setsockopt(zmq.RCVHWM, MAX_WAITING_MESSAGES)
        socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_INTERVAL_MS)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS)
        socket.setsockopt(zmq.HEARTBEAT_TTL, HEARTBEAT_TTL_MS)
        socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_INTERVAL_MS)
        socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
        socket.setsockopt(zmq.RECONNECT_IVL, 50)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)
        socket.curve_publickey = self._keys.public_key.encode()
        socket.curve_secretkey = self._keys.secret_key.encode()
        return socket
