"""Servers of the standard library that answer tests from a thread."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from socketserver import BaseServer
from typing import TypeVar

Server = TypeVar("Server", bound=BaseServer)


class QuietHandler(BaseHTTPRequestHandler):
    """One that logs nothing."""

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", "0")))

    def answer(
        self, status: int, content: bytes = b"", kind: str = "application/json", **headers: str
    ) -> None:
        """A whole answer; dashes in names of headers are underscores here."""
        self.send_response(status)
        fields = {"Content-Type": kind, "Content-Length": str(len(content)), **headers}
        for name, value in fields.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@contextmanager
def answering(server: Server) -> Iterator[Server]:
    """It answers within, and is closed after that."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
