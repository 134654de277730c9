"""`python -m runtime coordinator` as a process: join, serve, and serve on when helixweb is gone."""

import asyncio
import hashlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from coordinator_doubles import RANGES, ScriptedStages, serving_plan, write_checkpoint
from free_port import free_port
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from planner.domain.cluster import COORDINATOR
from runtime.protocol.control import (
    AgentIdentity,
    CoordinatorDesired,
    CoordinatorReport,
    HeartbeatReply,
    PeerAddress,
    RegisterReply,
    RegisterRequest,
)
from runtime.protocol.data import Message
from runtime.protocol.join_tokens import TOKEN_VARIABLE
from runtime.transport.base import Received
from runtime.transport.zmq_sockets import KeyPair
from runtime.transport.zmq_transport import ZmqTransport

pytestmark = pytest.mark.processes

KEY = "hlx_secret"
TOKEN = "hlxj_token"
ANSWER = "served"


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.02)


class FakeHelixweb:
    """The addresses of helixweb that a coordinator calls, with one cluster behind them."""

    def __init__(self) -> None:
        self.registered: RegisterRequest | None = None
        self.announced: list[AgentIdentity] = []
        self.reports: list[CoordinatorReport] = []
        self.desired = CoordinatorDesired(generation=0)
        self.removed = False
        self.app = Starlette(
            routes=[
                Route("/api/v1/agent/register", self.register, methods=["POST"]),
                Route("/api/v1/agent/identity", self.identity, methods=["PUT"]),
                Route("/api/v1/coordinator/desired", self.get_desired),
                Route("/api/v1/coordinator/report", self.report, methods=["POST"]),
                Route("/api/v1/coordinator/stream", self.stream),
            ]
        )

    async def register(self, http: Request) -> Response:
        request = RegisterRequest.model_validate_json(await http.body())
        if request.join_token != TOKEN or self.registered is not None:
            detail = "The join token was used already; make a fresh one."
            return JSONResponse({"title": "Token used", "detail": detail}, status_code=403)
        self.registered = request
        reply = RegisterReply(
            name=request.name, cluster="test", credential="hlxn_x", heartbeat_interval_s=1
        )
        return JSONResponse(reply.model_dump(mode="json"), status_code=201)

    async def identity(self, http: Request) -> Response:
        self.announced.append(AgentIdentity.model_validate_json(await http.body()))
        return Response(status_code=204)

    async def get_desired(self, http: Request) -> Response:
        return Response(self.desired.model_dump_json(), media_type="application/json")

    async def report(self, http: Request) -> Response:
        if self.removed or http.headers["authorization"] != "Bearer hlxn_x":
            return JSONResponse({"title": "Unknown", "detail": "removed"}, status_code=401)
        self.reports.append(CoordinatorReport.model_validate_json(await http.body()))
        reply = HeartbeatReply(generation=self.desired.generation)
        return JSONResponse(reply.model_dump(mode="json"))

    async def stream(self, http: Request) -> Response:
        async def frames() -> AsyncIterator[str]:
            sent = None
            while not self.removed:
                if sent != self.desired:
                    sent = self.desired
                    yield f'event: desired\ndata: {{"state": {sent.model_dump_json()}}}\n\n'
                await asyncio.sleep(0.02)

        return StreamingResponse(frames(), media_type="text/event-stream")


@contextmanager
def listening(app: Starlette, port: int) -> Iterator[None]:
    """Serve `app` on a loopback port from a thread."""
    config = uvicorn.Config(
        app, host="127.0.0.1", port=port, log_config=None, timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    wait_for(lambda: server.started, "the fake helixweb is up")
    try:
        yield
    finally:
        server.should_exit = True
        thread.join()


class NetworkedStages:
    """The scripted stages on real sockets: one transport each, pumped by one thread."""

    def __init__(self, text: str) -> None:
        keys = {name: KeyPair.generate() for name in RANGES}
        self.transports = {
            name: ZmqTransport(name=name, bind="tcp://127.0.0.1:0", keys=keys[name])
            for name in RANGES
        }
        self.peers = tuple(
            PeerAddress(name=name, endpoint=transport.endpoint, public_key=keys[name].public_key)
            for name, transport in self.transports.items()
        )
        self.stages = ScriptedStages(lambda prompt: [*_byte_tokens(text), 257])
        self.stages.deliver = self._to_coordinator  # type: ignore[method-assign]
        self._stop = threading.Event()
        self._dying: list[str] = []
        self._thread = threading.Thread(target=self._pump)

    def _to_coordinator(self, sender: str, message: Message) -> None:
        if sender in self.transports:
            self.transports[sender].send(COORDINATOR, message)

    def die(self, name: str) -> None:
        """Its stage is there no more."""
        self._dying.append(name)

    def start(self, coordinator: PeerAddress) -> None:
        for transport in self.transports.values():
            transport.set_peers([coordinator])
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        for transport in self.transports.values():
            transport.close()

    def _pump(self) -> None:
        next_status = 0.0
        while not self._stop.is_set():
            while self._dying:
                self.transports.pop(self._dying.pop()).close()
            if time.monotonic() > next_status:
                self.stages.report()
                next_status = time.monotonic() + 0.5
            for name, transport in self.transports.items():
                received: list[Received] = transport.receive(timeout_s=0)
                for one in received:
                    assert one.sender == COORDINATOR
                    self.stages.send(name, one.message)
            self.stages.step()
            time.sleep(0.002)


def _byte_tokens(text: str) -> list[int]:
    """ASCII only: the byte-level alphabet sorts printable ASCII first, from '!'."""
    return [ord(char) - ord("!") for char in text]


_MAIN = """
import sys
from runtime.__main__ import main
from runtime.coordinator import coordinator as process
process.REPORT_INTERVAL_S = {report_interval_s}
sys.exit(main(sys.argv[1:]))
"""


class Coordinator:
    """The process, its addresses, and a client."""

    def __init__(
        self,
        tmp_path: Path,
        *,
        server_port: int,
        token: str | None,
        ports: tuple[int, int] | None = None,
        report_interval_s: float = 1.0,
    ) -> None:
        self.port, self.metrics_port = self.ports = ports or (free_port(), free_port())
        command = [
            sys.executable, "-c", _MAIN.format(report_interval_s=report_interval_s), "coordinator",
            "--server", f"http://127.0.0.1:{server_port}",
            "--data-dir", str(tmp_path / "data"), "--port", str(self.port),
            "--metrics-port", str(self.metrics_port),
        ]  # fmt: skip
        environment = os.environ | {"PYTHONPATH": os.getcwd(), TOKEN_VARIABLE: token or ""}
        with (tmp_path / "coordinator.log").open("a") as log:
            self.process = subprocess.Popen(command, stderr=log, env=environment)

    def health(self) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = httpx.get(
                f"http://127.0.0.1:{self.port}/health", timeout=90
            ).json()
        except httpx.TransportError:
            assert self.process.poll() is None, "the coordinator ended"
            return {"status": "starting"}
        return answer

    def chat(self) -> httpx.Response:
        return httpx.post(
            f"http://127.0.0.1:{self.port}/v1/chat/completions",
            headers={"Authorization": f"Bearer {KEY}"},
            json={"model": "tiny", "messages": [{"role": "user", "content": "hi"}]},
            timeout=90,
        )

    def metrics(self, port: int, key: str = "") -> httpx.Response:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx.get(f"http://127.0.0.1:{port}/metrics", headers=headers, timeout=90)

    def end(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=90)


def test_it_joins_serves_and_serves_on_without_helixweb_and_after_its_own_restart(
    tmp_path: Path,
) -> None:
    web, web_port = FakeHelixweb(), free_port()
    stages = NetworkedStages(ANSWER)
    plan = serving_plan(write_checkpoint(tmp_path / "checkpoint"), peers=stages.peers)
    coordinators = []
    try:
        with listening(web.app, web_port):
            first = Coordinator(tmp_path, server_port=web_port, token=TOKEN)
            coordinators.append(first)
            wait_for(lambda: bool(web.reports), "a report")
            assert first.health()["status"] == "no plan"
            assert web.registered is not None
            assert web.registered.role == "coordinator"
            assert web.registered.http_url == f"http://127.0.0.1:{first.port}"
            stages.start(
                PeerAddress(
                    name=COORDINATOR,
                    endpoint=web.registered.data_endpoint,
                    public_key=web.registered.data_public_key,
                )
            )
            hashes = (hashlib.sha256(KEY.encode()).hexdigest(),)
            web.desired = CoordinatorDesired(generation=7, plan=plan, api_key_hashes=hashes)
            wait_for(lambda: first.health()["status"] == "ok", "all stages are heard")
            answer = first.chat()
            assert answer.json()["choices"][0]["message"]["content"] == ANSWER
            wait_for(lambda: web.reports[-1].output_tokens_total > 0, "tokens are reported")
            assert web.reports[-1].generation == 7
            assert first.metrics(first.port).status_code == 401
            told = first.metrics(first.port, KEY)
            assert 'vllm:request_success_total{finished_reason="stop",' in told.text
            assert 'vllm:time_to_first_token_seconds_count{model_name="tiny"} 1.0' in told.text
            alone = first.metrics(first.metrics_port)
            assert alone.headers["content-type"].startswith("text/plain; version=0.0.4")
            assert "helix_coordinator_generation 7.0" in alone.text
        assert first.chat().status_code == 200
        assert first.end() == 0
        again = Coordinator(tmp_path, server_port=web_port, token=None, ports=first.ports)
        coordinators.append(again)
        wait_for(lambda: again.health()["status"] == "ok", "it is up without helixweb")
        assert again.chat().status_code == 200
        reported, announced = len(web.reports), len(web.announced)
        with listening(web.app, web_port):
            wait_for(lambda: len(web.reports) > reported, "it reports once helixweb is back")
            wait_for(lambda: len(web.announced) > announced, "it says again where it listens")
            assert web.announced[-1].http_url == f"http://127.0.0.1:{again.port}"
            web.removed = True
            assert again.process.wait(timeout=90) == 2
        log = (tmp_path / "coordinator.log").read_text()
        assert "does not know this coordinator any more" in log.splitlines()[-1]
    finally:
        stages.stop()
        for coordinator in coordinators:
            coordinator.process.kill()
            coordinator.process.wait()


def test_a_lost_stage_is_reported_because_it_was_lost_and_not_when_the_next_report_is_due(
    tmp_path: Path,
) -> None:
    web, web_port = FakeHelixweb(), free_port()
    stages = NetworkedStages(ANSWER)
    plan = serving_plan(write_checkpoint(tmp_path / "checkpoint"), peers=stages.peers)
    web.desired = CoordinatorDesired(generation=7, plan=plan)
    lost = sorted(stages.transports)[0]
    with listening(web.app, web_port):
        coordinator = Coordinator(
            tmp_path, server_port=web_port, token=TOKEN, report_interval_s=3600.0
        )
        try:
            wait_for(lambda: web.registered is not None, "it joins")
            assert web.registered is not None
            stages.start(
                PeerAddress(
                    name=COORDINATOR,
                    endpoint=web.registered.data_endpoint,
                    public_key=web.registered.data_public_key,
                )
            )
            wait_for(lambda: bool(web.reports) and web.reports[-1].serving, "it serves")
            assert web.reports[-1].lost_nodes == {}
            stages.die(lost)
            wait_for(lambda: lost in web.reports[-1].lost_nodes, "the loss is reported")
            assert not web.reports[-1].nodes[lost].ready
        finally:
            stages.stop()
            coordinator.process.kill()
            coordinator.process.wait()


def test_a_used_join_token_ends_it_with_one_line_and_status_2(tmp_path: Path) -> None:
    web, web_port = FakeHelixweb(), free_port()
    with listening(web.app, web_port):
        coordinator = Coordinator(tmp_path, server_port=web_port, token="hlxj_other")
        assert coordinator.process.wait(timeout=90) == 2
    assert coordinator.end() == 2
    last = (tmp_path / "coordinator.log").read_text().splitlines()[-1]
    assert last == "coordinator: The join token was used already; make a fresh one."


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--port", "{busy}"], "choose another --port"),
        (["--port", "0", "--data-host", "*"], "--data-host '*'"),
        (["--port", "0", "--server", "helix.example.org"], "--server 'helix.example.org'"),
    ],
)
def test_an_address_it_cannot_use_ends_it_with_one_line_and_status_2(
    tmp_path: Path, arguments: list[str], words: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        busy = str(taken.getsockname()[1])
        command = [
            sys.executable, "-m", "runtime", "coordinator",
            "--server", "http://127.0.0.1:1", "--data-dir", str(tmp_path),
            *(argument.format(busy=busy) for argument in arguments),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert words in line
