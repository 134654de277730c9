"""Decides which CURVE keys may connect: the ZAP handler (RFC 27) of one ZeroMQ context.

pyzmq's own answers an unknown key with "400", after which libzmq's client never dials again; a
node that dials before its peer knows the deployment would stay cut off. We answer "300": the
connection closes without a word and the client tries again.
"""

import logging
import threading
from collections.abc import Iterable

import zmq
from zmq.utils import z85

logger = logging.getLogger(__name__)

ZAP_ENDPOINT = "inproc://zeromq.zap.01"
_VERSION = b"1.0"


class AllowList:
    """Answers for `context` in a thread of its own, from construction to `close`.

    Make it before any socket binds: without a handler connections are let in unchecked. An
    admitted connection's frames carry its key (z85) as `frame.get("User-Id")`.
    """

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]") -> None:
        self._keys: frozenset[str] = frozenset()
        self._refused: set[str] = set()
        self._zap = context.socket(zmq.REP)
        self._zap.linger = 0
        self._zap.bind(ZAP_ENDPOINT)
        stop_endpoint = f"inproc://allow-list-stop-{id(self)}"
        self._stop = context.socket(zmq.PAIR)
        self._stop.bind(stop_endpoint)
        self._stopped = context.socket(zmq.PAIR)
        self._stopped.connect(stop_endpoint)
        self._thread = threading.Thread(target=self._answer, name="zap", daemon=True)
        self._thread.start()

    def replace(self, public_keys: Iterable[str]) -> None:
        """Admit exactly these from now on; connections that stand are not cut."""
        self._keys = frozenset(public_keys)

    def close(self) -> None:
        """Stop answering. Call it once, after the sockets it guards are closed."""
        self._stop.send(b"")
        self._thread.join()
        for socket in (self._stop, self._stopped, self._zap):
            socket.close(linger=0)

    def _answer(self) -> None:
        poller = zmq.Poller()
        poller.register(self._zap, zmq.POLLIN)
        poller.register(self._stopped, zmq.POLLIN)
        while self._stopped not in (ready := dict(poller.poll())):
            if self._zap in ready:
                self._zap.send_multipart(self._reply(self._zap.recv_multipart()))

    def _reply(self, question: list[bytes]) -> list[bytes]:
        # version, request id, domain, address, identity, mechanism, credentials
        request_id, address, mechanism = question[1], question[3], question[5]
        key = z85.encode(question[6]).decode() if mechanism == b"CURVE" else mechanism.decode()
        if mechanism == b"CURVE" and key in self._keys:
            return [_VERSION, request_id, b"200", b"OK", key.encode(), b""]
        if key not in self._refused:
            self._refused.add(key)
            logger.warning("refused a connection of %s: key %s", address.decode(), key)
        return [_VERSION, request_id, b"300", b"Key not listed", b"", b""]
