"""A port that leads to another one, and what may go wrong on the way."""

import socket
import threading
from contextlib import suppress


class Relay:
    """A port that leads to another; all connections through it can be broken at once."""

    def __init__(self, port: int) -> None:
        self._target_port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._ends: list[socket.socket] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()
        self.port: int = self._listener.getsockname()[1]
        self.is_deaf = False  # accepts, and passes nothing on
        self.swallowed_bytes = 0
        self._swallowing: frozenset[socket.socket] = frozenset()
        self.held = 0  # accepted while deaf
        self.answered_bytes = 0  # since the last break

    def break_all(self) -> None:
        for end in tuple(self._ends):  # not those who come back meanwhile
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self.answered_bytes = 0

    def swallow(self) -> None:
        """What comes from now on over the connections of now, to no use of anybody."""
        self._swallowing = frozenset(self._ends)

    def refuse(self) -> None:
        """Who connects from now on."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()

    def close(self) -> None:
        self.break_all()
        self.refuse()
        for end in (self._listener, *self._ends):
            end.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self._ends.append(near)
                if self.is_deaf:
                    self.held += 1
                    continue
                try:
                    far = socket.create_connection(("127.0.0.1", self._target_port))
                except ConnectionRefusedError:
                    near.close()
                    continue
                self._ends.append(far)
                for source, target, counts in ((near, far, False), (far, near, True)):
                    threading.Thread(
                        target=self._pass, args=(source, target, counts), daemon=True
                    ).start()

    def _pass(self, source: socket.socket, target: socket.socket, counts: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if source in self._swallowing:
                    self.swallowed_bytes += len(data)
                    continue
                target.sendall(data)
                self.answered_bytes += len(data) * counts
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
