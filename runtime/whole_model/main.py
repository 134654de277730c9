"""`python -m runtime serve`: our engine alone, an OpenAI-compatible endpoint for one checkpoint.

One stage process holds all layers. HELIX_API_KEY holds the key that clients need; /metrics has
vLLM's names. Exit status 1: the stage ended, which its last line says; 2: called wrongly.
"""

import argparse
import asyncio
import hashlib
import logging
import os
import random
import secrets
import ssl
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from starlette.types import ASGIApp

from planner.domain.cluster import COORDINATOR
from planner.domain.errors import PlannerError
from runtime.agent.gpus import find_gpus
from runtime.agent.supervisor import STAGE_COMMAND, StageSettings, Supervisor
from runtime.agent.vllm_environment import find_python
from runtime.api.access import ApiKeys
from runtime.checkpoints.errors import CheckpointError
from runtime.checkpoints.model_facts import read_sizes
from runtime.command_numbers import (
    SIZE_HELP,
    port_number,
    positive_int,
    ratio,
    size_bytes,
)
from runtime.command_options import add_options, add_serving_options, option
from runtime.coordinator.app import PipelineBackend
from runtime.coordinator.dispatcher import Dispatcher
from runtime.coordinator.message_loops import message_loops
from runtime.coordinator.request_stats import RequestStats
from runtime.coordinator.serving import Routing, Serving
from runtime.coordinator.tokenizer import load_tokenizer
from runtime.free_memory import bound_free_memory
from runtime.http_process import (
    Ending,
    HttpServer,
    hear_signals,
    listen,
    serve_until_told,
)
from runtime.membership.data_address import choose_port, data_endpoint
from runtime.membership.hardware import detect_hardware, gpu_budgets_bytes
from runtime.metrics_port import metrics_route
from runtime.openai_app import assemble
from runtime.platforms import CUDA_ORDER
from runtime.process_log import ProcessLog
from runtime.protocol.complaints import StartRefused
from runtime.protocol.control import PeerAddress, StageAssignment
from runtime.protocol.engines import EngineSettings
from runtime.protocol.logs import begin_logging
from runtime.transport.zmq_sockets import KeyPair
from runtime.transport.zmq_transport import AsyncZmqTransport
from runtime.whole_model.assembly import (
    STAGE,
    CannotServe,
    metrics_page,
    serving_plan,
    stage_assignment,
)

API_KEY_VARIABLE = "HELIX_API_KEY"
LOOPBACK = "127.0.0.1"
_STATS_WINDOW_S = 10.0

logger = logging.getLogger(__name__)


class StageEnded(Exception):
    """Nothing can be served any more; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The command line."""

    checkpoint: Path = option(
        required=True, type=Path, help="directory of a Hugging Face checkpoint, or a GGUF file"
    )
    model_name: str = option(help="what clients ask for (default: the directory's name)")
    host: str = option(default=LOOPBACK, help="address for clients (default %(default)s)")
    port: int = option(
        type=port_number, default=8000, help="port for clients (default %(default)s)"
    )
    memory_budget_bytes: int | None = option(
        type=size_bytes,
        metavar="SIZE",
        help=f"in {SIZE_HELP}; default: 90 %% of a GPU, or half of main memory",
    )
    max_context_tokens: int | None = option(
        type=positive_int, help="default: that of the checkpoint"
    )
    relative_speed: float = option(type=ratio, default=1.0, help="below 1: slowed on purpose")
    tensor_parallel: int = option(type=positive_int, default=1, help="ranks, a GPU each")
    threads: int = option(
        type=positive_int, default=1, help="of a stage on CPU (default %(default)s)"
    )
    emulate: Path | None = option(
        type=Path, metavar="FILE.json", help="run no model: act as a node like that"
    )
    ssl_certfile: Path | None = option(
        type=Path, metavar="FILE.pem", help="answer by HTTPS, presenting this"
    )
    ssl_keyfile: Path | None = option(type=Path, metavar="FILE.pem", help="its private key")
    request_timeout_s: float
    shutdown_grace_s: float


def main(argv: list[str]) -> int:
    """0 after SIGTERM or SIGINT."""
    options = parse_options(argv)
    bound_free_memory()
    key = os.environ.get(API_KEY_VARIABLE, "")
    try:
        begin_logging("serve")
        if (options.ssl_keyfile is None) != (options.ssl_certfile is None):
            raise CannotServe("HTTPS takes both --ssl-certfile and --ssl-keyfile; give the other")
        if not key:
            raise CannotServe(f"no API key; set {API_KEY_VARIABLE} to what clients must send")
        with tempfile.TemporaryDirectory(prefix="helix-serve-") as directory:
            asyncio.run(serve(options, api_key=key, directory=Path(directory)))
    except StageEnded as error:
        sys.stderr.write(f"serve: {error}\n")
        return 1
    except (StartRefused, CheckpointError, PlannerError) as error:
        sys.stderr.write(f"serve: {error}\n")
        return 2
    return 0


async def serve(options: Options, *, api_key: str, directory: Path) -> None:
    """Serve until a signal; the stage's key and log are in `directory`. Raises StageEnded, and
    what makes serving impossible."""
    sizes = read_sizes(options.checkpoint)
    tokenizer = await asyncio.to_thread(load_tokenizer, options.checkpoint)
    listener = listen(options.host, options.port)
    own_keys, stage_keys = KeyPair.generate(), KeyPair.load_or_create(directory / "stage.key")
    transport = AsyncZmqTransport(name=COORDINATOR, bind=_free_endpoint(), keys=own_keys)
    assignment = stage_assignment(
        model_name=options.model_name,
        checkpoint=options.checkpoint,
        sizes=sizes,
        max_context_tokens=options.max_context_tokens,
        tensor_parallel=options.tensor_parallel,
        coordinator=PeerAddress(
            name=COORDINATOR, endpoint=transport.endpoint, public_key=own_keys.public_key
        ),
    )
    stage = PeerAddress(name=STAGE, endpoint=_free_endpoint(), public_key=stage_keys.public_key)
    plan = serving_plan(assignment, stage=stage, emulated=options.emulate is not None)
    stats = RequestStats(window_s=_STATS_WINDOW_S, clock=time.monotonic)
    dispatcher = _dispatcher(options, transport, stats)
    routing = Routing(name="iwrr", rng=random.SystemRandom(), clock=time.monotonic)
    dispatcher.serve(Serving(plan=plan, tokenizer=tokenizer, routing=routing))
    transport.set_peers((stage,))
    ended = asyncio.Event()
    supervisor = _supervisor(options, stage, directory, ended)

    def metrics() -> bytes:
        stage = supervisor.local.running
        return metrics_page(
            stats,
            plan=plan,
            running=dispatcher.requests_running,
            waiting=dispatcher.requests_waiting,
            stage=None if stage is None else stage.stats,
        )

    backend = PipelineBackend(dispatcher=dispatcher)
    app = assemble(
        lambda: backend,
        keys=ApiKeys([hashlib.sha256(api_key.encode()).hexdigest()]),
        routes=[metrics_route(metrics), *backend.routes],
    )
    logger.info("listening on %s:%d", options.host, listener.getsockname()[1])
    try:
        await supervisor.start(assignment)
        await serve_until_told(
            _server(app, options),
            listener,
            *message_loops(dispatcher, transport),
            _fail_at_end(ended, supervisor, assignment),
            signals=hear_signals(),
            ending=_ending(dispatcher, grace_s=options.shutdown_grace_s),
        )
    finally:
        await supervisor.stop()
        transport.close()


def _dispatcher(options: Options, transport: AsyncZmqTransport, stats: RequestStats) -> Dispatcher:
    return Dispatcher(
        transport=transport,
        stats=stats,
        clock=time.monotonic,
        new_request_id=lambda: secrets.randbits(63),
        request_timeout_s=options.request_timeout_s,
    )


def _ending(dispatcher: Dispatcher, *, grace_s: float) -> Ending:
    async def cut() -> None:
        dispatcher.stop()

    def requests_here() -> int:
        return dispatcher.requests_here

    return Ending(requests=requests_here, close=dispatcher.close, cut=cut, grace_s=grace_s)


def _supervisor(
    options: Options, stage: PeerAddress, directory: Path, ended: asyncio.Event
) -> Supervisor:
    """Sets `ended` when the stage has failed."""
    os.environ.update(CUDA_ORDER)
    hardware = detect_hardware(
        memory_budget_bytes=options.memory_budget_bytes,
        relative_speed=options.relative_speed,
        gpus=[gpu.announced for gpu in find_gpus(os.environ)],
    )

    def look() -> None:
        if supervisor.local.failure is not None:
            ended.set()

    supervisor = Supervisor(
        settings=StageSettings(
            name=STAGE,
            bind=stage.endpoint,
            secret_key_file=str(directory / "stage.key"),
            public_key=stage.public_key,
            memory_budget_bytes=hardware.memory_budget_bytes,
            relative_speed=options.relative_speed,
            threads=options.threads,
            gpu_budgets_bytes=(
                gpu_budgets_bytes(hardware.gpus) if options.memory_budget_bytes is None else ()
            ),
            engine=EngineSettings(python=find_python(None), has_gpu=bool(hardware.gpus)),
            command=_stage_command(options),
        ),
        log=ProcessLog(
            directory / "stage.log", on_line=lambda line: logger.info("stage: %s", line)
        ),
        on_change=look,
    )
    return supervisor


async def _fail_at_end(
    ended: asyncio.Event, supervisor: Supervisor, assignment: StageAssignment
) -> None:
    await ended.wait()
    failure = supervisor.local.failure
    said = "for no known reason" if failure is None else failure.message
    raise StageEnded(f"{assignment.model_name} is served no more: {said}")


def _stage_command(options: Options) -> tuple[str, ...]:
    if options.emulate is None:
        return STAGE_COMMAND
    return (*STAGE_COMMAND, "--emulate", str(options.emulate.resolve()))


def _free_endpoint() -> str:
    return data_endpoint(LOOPBACK, choose_port(LOOPBACK, wanted=0, kept=None))


def _server(app: ASGIApp, options: Options) -> HttpServer:
    """Raises CannotServe for files that are no certificate and its key."""
    if options.ssl_keyfile is None or options.ssl_certfile is None:
        return HttpServer(app)
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
            options.ssl_certfile, options.ssl_keyfile
        )
    except (OSError, ssl.SSLError) as error:
        raise CannotServe(
            f"{options.ssl_certfile} and {options.ssl_keyfile} are no certificate and its key "
            f"({error})"
        ) from error
    return HttpServer(
        app, ssl_keyfile=str(options.ssl_keyfile), ssl_certfile=str(options.ssl_certfile)
    )


def parse_options(argv: list[str]) -> Options:
    """Exits with status 2 and a usage message when `argv` is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m runtime serve",
        description="Serve one checkpoint with our engine alone: an OpenAI-compatible endpoint, "
        f"for clients that send the key in {API_KEY_VARIABLE}.",
    )
    add_options(parser, Options)
    add_serving_options(parser, late="a request fails", grace_s=20.0)
    arguments = parser.parse_args(argv)
    arguments.model_name = arguments.model_name or arguments.checkpoint.resolve().name
    return Options(**vars(arguments))
