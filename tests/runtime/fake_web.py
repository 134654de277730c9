"""helixweb's side of the control protocol, small but real: HTTP over loopback in a thread."""

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Self

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from runtime.protocol.checkpoint_looks import LookAnswer
from runtime.protocol.control import (
    AgentIdentity,
    CoordinatorDesired,
    CoordinatorReport,
    DesiredState,
    Heartbeat,
    HeartbeatReply,
    ObservedState,
    RegisterReply,
    RegisterRequest,
)
from runtime.protocol.node_log import LogBatch, LogLine
from runtime.protocol.profiling import ProfileOrder, ProfilingProgress
from runtime.protocol.weight_access import PEERS_PATH, WeightPeers

PATIENCE_S = 90.0
TOKEN = "hlxj_good"


def wait_until(condition: Callable[[], object], *, what: str) -> None:
    """Raises AssertionError if `condition` does not come true in good time."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, f"never came true: {what}"
        time.sleep(0.02)


class FakeWeb:
    """Keeps what it was told. `start` and `stop` as often as wanted, on one port."""

    def __init__(self, *, heartbeat_interval_s: float = 0.2) -> None:
        self.unused_tokens = {TOKEN}
        self.credentials: dict[str, str] = {}  # credential -> node uuid
        self.registrations: list[RegisterRequest] = []
        self.announcements: list[AgentIdentity] = []
        self.observed: list[ObservedState] = []
        self.profile: ProfileOrder | None = None
        self.unknown_of_reach: set[str] = set()  # to a site of an earlier release
        self.profilings: list[ProfilingProgress] = []
        self.looked: dict[int, LookAnswer] = {}
        self.log: list[LogLine] = []
        self.reports: list[CoordinatorReport] = []
        self.desired = DesiredState(generation=0)
        self.coordinator_desired = CoordinatorDesired(generation=0)
        self.weight_peers = WeightPeers()
        self.is_streaming = True  # False: pushes are lost
        self.streams_opened = 0
        self.troubled_answers = 0  # so many calls are answered 503
        self.is_gated = False  # a gateway in front lets nobody in
        self.gated_answers = 0
        self.proxy_answers = 0  # so many joins are answered by something else
        self.lost_answers = 0  # so many joins are done, and their answers are lost
        self._kept: dict[str, RegisterReply] = {}  # by Idempotency-Key
        self._heartbeat_interval_s = heartbeat_interval_s
        self.farewells = 0
        # Nobody else is given the port while it is away; who dials it then is refused.
        self._holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._holder.bind(("127.0.0.1", 0))
        self.port: int = self._holder.getsockname()[1]
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        self._holder.close()

    def start(self) -> None:
        if self._listener.fileno() < 0:
            self._listener = socket.create_server(("127.0.0.1", self.port))
        config = uvicorn.Config(
            self._app(), log_level="warning", lifespan="off", timeout_graceful_shutdown=1
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._listener]}, daemon=True
        )
        self._thread.start()
        wait_until(lambda: self._server is not None and self._server.started, what="server up")

    def stop(self) -> None:
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._server.force_exit = True
            self._thread.join()
        self._listener.close()
        self._server = self._thread = None

    def remove_all(self) -> None:
        """As if every node were deleted."""
        self.credentials.clear()

    @property
    def last(self) -> ObservedState | None:
        return self.observed[-1] if self.observed else None

    def _app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/api/v1/agent/register", self._register, methods=["POST"]),
                Route("/api/v1/agent/identity", self._identity, methods=["PUT"]),
                Route("/api/v1/agent/desired", self._desired),
                Route("/api/v1/agent/heartbeat", self._heartbeat, methods=["POST"]),
                Route("/api/v1/agent/log", self._log, methods=["POST"]),
                Route("/api/v1/agent/stream", self._stream),
                Route(PEERS_PATH, self._weight_peers),
                Route("/api/v1/coordinator/desired", self._coordinator_desired),
                Route("/api/v1/coordinator/report", self._report, methods=["POST"]),
            ]
        )

    async def _register(self, request: Request) -> Response:
        if self.troubled_answers:
            return self._troubled()
        if self.proxy_answers:
            self.proxy_answers -= 1
            return HTMLResponse("<h1>some proxy</h1>", status_code=502)
        message = RegisterRequest.model_validate_json(await request.body())
        key = request.headers["Idempotency-Key"]
        if key in self._kept:
            return answer(self._kept[key], status=201)
        beside = {one.machine_uuid for one in self.registrations} - {None}
        if message.join_token not in self.unused_tokens and message.machine_uuid not in beside:
            return problem(403, "Forbidden", "The join token is unknown or used; copy a fresh one.")
        self.unused_tokens.discard(message.join_token)
        self.registrations.append(message)
        credential = f"hlxn_{len(self.registrations)}"
        self.credentials = {
            **{key: uuid for key, uuid in self.credentials.items() if uuid != message.node_uuid},
            credential: message.node_uuid,
        }
        reply = RegisterReply(
            name=message.name,
            cluster="test",
            credential=credential,
            heartbeat_interval_s=self._heartbeat_interval_s,
        )
        self._kept[key] = reply
        if self.lost_answers:
            self.lost_answers -= 1
            return problem(409, "Conflict", "It is at work.", headers={"Retry-After": "1"})
        return answer(reply, status=201)

    async def _identity(self, request: Request) -> Response:
        if refusal := self._refusal(request):
            return refusal
        self.announcements.append(AgentIdentity.model_validate_json(await request.body()))
        return Response(status_code=204)

    async def _desired(self, request: Request) -> Response:
        return self._refusal(request) or answer(self.desired)

    async def _weight_peers(self, request: Request) -> Response:
        return self._refusal(request) or answer(self.weight_peers)

    async def _heartbeat(self, request: Request) -> Response:
        if refusal := self._refusal(request):
            return refusal
        body = await request.json()
        if unknown := self.unknown_of_reach & (body["reach"] or {}).keys():
            errors = [
                {"field": f"reach.{name}", "message": "Extra inputs are not permitted (got 0)"}
                for name in sorted(unknown)[:1]
            ]
            return JSONResponse({"title": "Bad Request", "errors": errors}, status_code=400)
        heartbeat = Heartbeat.model_validate(body)
        self.observed.append(heartbeat.observed)
        self.farewells += heartbeat.leaving
        if heartbeat.profiling is not None:
            self.profilings.append(heartbeat.profiling)
        self.looked |= {one.id: one for one in heartbeat.looked}
        return answer(HeartbeatReply(generation=self.desired.generation, profile=self.profile))

    async def _log(self, request: Request) -> Response:
        if refusal := self._refusal(request):
            return refusal
        self.log += LogBatch.model_validate_json(await request.body()).lines
        return Response(status_code=204)

    async def _stream(self, request: Request) -> Response:
        if refusal := self._refusal(request):
            return refusal
        self.streams_opened += 1
        return StreamingResponse(self._frames(), media_type="text/event-stream")

    async def _frames(self) -> AsyncIterator[bytes]:
        yield b"retry: 1000\n\n: hello\n\n"
        sent = None
        while self._server is not None and not self._server.should_exit:
            if self.is_streaming and self.desired != sent:
                sent = self.desired
                yield f'event: desired\r\ndata: {{"state": {sent.model_dump_json()}}}\n\n'.encode()
            await asyncio.sleep(0.02)

    async def _coordinator_desired(self, request: Request) -> Response:
        return self._refusal(request) or answer(self.coordinator_desired)

    async def _report(self, request: Request) -> Response:
        if refusal := self._refusal(request):
            return refusal
        self.reports.append(CoordinatorReport.model_validate_json(await request.body()))
        return answer(HeartbeatReply(generation=self.coordinator_desired.generation))

    def _refusal(self, request: Request) -> Response | None:
        if self.is_gated:
            self.gated_answers += 1
            page = "<h1>401 Authorization Required</h1>"
            return Response(page, status_code=401, media_type="text/html")
        if self.troubled_answers:
            return self._troubled()
        scheme, _, credential = request.headers.get("Authorization", "").partition(" ")
        if scheme != "Bearer" or credential not in self.credentials:
            return problem(401, "Unauthorized", "This credential is unknown; join again.")
        return None

    def _troubled(self) -> Response:
        self.troubled_answers -= 1
        return problem(503, "Service Unavailable", "The database is busy.")


def answer(message: object, *, status: int = 200) -> Response:
    return Response(
        message.model_dump_json(),  # type: ignore[attr-defined]
        status_code=status,
        media_type="application/json",
    )


def problem(
    status: int, title: str, detail: str, headers: dict[str, str] | None = None
) -> Response:
    return JSONResponse(
        {"type": "about:blank", "title": title, "status": status, "detail": detail},
        status_code=status,
        headers=headers,
        media_type="application/problem+json",
    )
