"""A server that speaks the hub's API, with the faults of real ones on demand.

Files are served from folders by HTTP range, from a store that the hub redirects to with an address
that can expire.
"""

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from runtime.protocol.weight_access import PEERS_PATH, SITE_PATH, WeightPeers

_SLICE_BYTES = 1 << 16
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class HubServer:
    """Repositories by name. Counters and faults are read and set by tests while it runs."""

    def __init__(self, repositories: dict[str, Path], *, host: str) -> None:
        self.repositories = repositories
        self.token = ""  # asked for if set
        self.commit = COMMIT  # of the default branch
        self.branch = "main"  # the default one
        self.older_commits: set[str] = set()  # that are still there
        self.requests = 0
        self.sent_bytes = 0
        self.weights_sent: Counter[str] = Counter()  # bytes of safetensors by client address
        self.asked: list[tuple[str, str]] = []  # file, range
        self.tokens_at_store: list[str | None] = []
        self.cut_after: list[int] = []  # bytes after which the next answers of the store end
        self.wrong_at: dict[str, int] = {}  # a byte of a file that is sent flipped
        self.expired = 0  # so many addresses of the store have expired
        self.busy = 0  # so many answers of the store are 503
        self.refuse_after: int | None = None  # bytes, then the token has expired
        self.ignores_ranges = False
        self.peers = WeightPeers()  # as a site names them; credentials are names
        self.answering = threading.Event()  # cleared: requests wait
        self.answering.set()
        self.waits_at: int | None = None  # bytes that were sent, then `answering` is cleared
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                with suppress(ConnectionError):
                    hub.answer(self)

            def log_message(self, format: str, *args: Any) -> None:
                """Keep tests quiet."""

        self.server = ThreadingHTTPServer((host, 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://{host}:{self.server.server_port}"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """One request."""
        self.requests += 1
        self.answering.wait()
        parts = urlsplit(request.path)
        if parts.path.startswith("/stored/"):
            return self._store(request, parts.path, parse_qs(parts.query))
        if parts.path == PEERS_PATH:
            asks = request.headers.get("Authorization", "").removeprefix("Bearer ")
            others = tuple(peer for peer in self.peers.peers if peer.name != asks)
            told = self.peers.model_copy(update={"peers": others}).model_dump_json()
            return self._send(request, PEERS_PATH, told.encode(), {})
        if parts.path.startswith(SITE_PATH):  # a site without this model
            return _refuse(request, 404, "")
        is_info = parts.path.startswith("/api/models/")
        asked = parts.path.removeprefix("/api/models" if is_info else "")[1:]
        name, _, rest = asked.partition("/revision/" if is_info else "/resolve/")
        revision, _, file = rest.partition("/")
        has_expired = self.refuse_after is not None and self.sent_bytes >= self.refuse_after
        if self.token and (
            has_expired or request.headers.get("Authorization") != f"Bearer {self.token}"
        ):
            return _refuse(request, 401, "GatedRepo")
        folder = self.repositories.get(name)
        if folder is None:
            return _refuse(request, 401, "RepoNotFound")
        if is_info:
            siblings = [{"rfilename": path.name} for path in folder.iterdir()]
            told = json.dumps({"sha": self.commit, "siblings": siblings})
            return self._send(request, "info", told.encode(), {})
        commit = self.commit if revision == self.branch else revision
        if commit not in {self.commit, *self.older_commits}:
            return _refuse(request, 404, "RevisionNotFound")
        path = folder / unquote(file)
        if not path.is_file():
            return _refuse(request, 404, "EntryNotFound")
        content = path.read_bytes()
        if path.suffix not in (".safetensors", ".gguf"):
            blob = b"blob %d\0" % len(content)
            etag = hashlib.sha1(blob + content, usedforsecurity=False).hexdigest()
            headers = {"X-Repo-Commit": commit, "ETag": f'"{etag}"'}
            return self._send(request, file, content, headers)
        request.send_response(302)
        request.send_header("Location", f"/stored/{name}/{file}?signed={self.expired}")
        request.send_header("X-Repo-Commit", commit)
        request.send_header("X-Linked-Etag", f'"{hashlib.sha256(content).hexdigest()}"')
        request.send_header("X-Linked-Size", str(len(content)))
        request.send_header("Content-Length", "0")
        request.end_headers()
        return None

    def _store(
        self, request: BaseHTTPRequestHandler, path: str, query: dict[str, list[str]]
    ) -> None:
        self.tokens_at_store.append(request.headers.get("Authorization"))
        name, _, file = path.removeprefix("/stored/").rpartition("/")
        if self.expired:
            self.expired -= 1
            return _refuse(request, 403, "")
        if self.busy:
            self.busy -= 1
            return _refuse(request, 503, "")
        content = (self.repositories[name] / unquote(file)).read_bytes()
        return self._send(request, file, content, {"ETag": '"of-the-store"'})

    def _send(
        self,
        request: BaseHTTPRequestHandler,
        file: str,
        content: bytes,
        headers: dict[str, str],
    ) -> None:
        whole, told = len(content), request.headers.get("Range", "")
        self.asked.append((file, told))
        if file in self.wrong_at:
            flipped = bytearray(content)
            flipped[self.wrong_at[file]] ^= 0xFF
            content = bytes(flipped)
        if told and not self.ignores_ranges:
            first, _, last = told.removeprefix("bytes=").partition("-")
            content = content[int(first) : int(last) + 1]
            request.send_response(206)
            headers |= {"Content-Range": f"bytes {first}-{last}/{whole}"}
        else:
            request.send_response(200)
        for key, value in headers.items():
            request.send_header(key, value)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        if self.cut_after and len(content) > self.cut_after[0]:
            content = content[: self.cut_after.pop(0)]
            request.close_connection = True
        for begin in range(0, len(content), _SLICE_BYTES):
            if self.waits_at is not None and self.sent_bytes >= self.waits_at:
                self.waits_at = None
                self.answering.clear()
            self.answering.wait()
            piece = content[begin : begin + _SLICE_BYTES]
            self.sent_bytes += len(piece)
            if file.endswith(".safetensors"):
                self.weights_sent[request.client_address[0]] += len(piece)
            request.wfile.write(piece)


@contextmanager
def hub_server(repositories: dict[str, Path], *, host: str = "127.0.0.1") -> Iterator[HubServer]:
    """While inside, it answers at an address of this machine."""
    hub = HubServer(repositories, host=host)
    thread = threading.Thread(target=hub.server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.server.shutdown()
        hub.server.server_close()


def _refuse(request: BaseHTTPRequestHandler, status: int, code: str) -> None:
    request.send_response(status)
    if code:
        request.send_header("X-Error-Code", code)
    request.send_header("Content-Length", "0")
    request.end_headers()
