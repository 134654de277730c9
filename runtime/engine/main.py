"""`python -m runtime stage`: the process an agent starts to run its node's layers.

Reads a launch line on stdin, then lines that add generations; writes event lines on stdout
(`protocol.stage_pipe`), logs on stderr. The end of stdin or SIGINT means stop: exit 0. SIGTERM
means leave: the same, once requests go on elsewhere. What it cannot run: `failed`, exit 1.
"""

import argparse
import io
import logging
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue

from pydantic import ValidationError

from runtime.engine.backend import CannotRun, Opened
from runtime.engine.choosing import (
    choose_for,
    go_on_in,
    handed_on_line,
    require_vllm,
    stdout_for_events,
)
from runtime.engine.core_use import core_reader, delay_reader
from runtime.engine.departure import Departure
from runtime.engine.emulated_links import EmulatedLinks
from runtime.engine.emulated_runner import EmulatedRunner
from runtime.engine.event_writer import EventWriter
from runtime.engine.generation import Generation
from runtime.engine.limits import EngineLimits
from runtime.engine.shared_cores import SharedCores, may_share_cores
from runtime.engine.stage import Stage
from runtime.engine.stage_process import StageProcess
from runtime.free_memory import keep_freed_memory
from runtime.module_loading import loading
from runtime.protocol.complaints import first_complaint
from runtime.protocol.control import PeerAddress
from runtime.protocol.emulation import Emulation, EmulationRefused, read_emulation
from runtime.protocol.engines import Engine
from runtime.protocol.stage_pipe import (
    AddOrder,
    FailedEvent,
    FetchingEvent,
    LoadingEvent,
    ReadyEvent,
    StageLaunch,
)
from runtime.protocol.weight_fetch import WeightFetch
from runtime.transport.zmq_sockets import KeyFileError, KeyPair
from runtime.transport.zmq_transport import ZmqTransport

logger = logging.getLogger(__name__)

_CHUNK_BYTES = 1 << 16


class _Stopped(Exception):
    """Asked to stop while loading."""


def main(argv: list[str]) -> int:
    """Run until told to stop; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m runtime stage", description=__doc__)
    parser.add_argument(
        "--emulate",
        type=Path,
        metavar="FILE.json",
        help="run no model: take as long as the node described there would (engine/emulation.py)",
    )
    parser.add_argument("--launch-fd", type=int, help=argparse.SUPPRESS)  # see engine/choosing.py
    parser.add_argument("--chosen-because", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    keep_freed_memory()
    stop = threading.Event()
    leave = threading.Event()
    signal.signal(signal.SIGINT, lambda _number, _frame: stop.set())
    signal.signal(signal.SIGTERM, lambda _number, _frame: leave.set())
    # unbuffered: a thread that waits in a buffered read would hold a lock the exit needs
    stdin = io.FileIO(sys.stdin.fileno(), closefd=False)
    is_vllm = arguments.launch_fd is not None
    stdout = os.fdopen(stdout_for_events(), "wb") if is_vllm else sys.stdout.buffer
    events = EventWriter(stdout, on_broken=stop.set)
    try:
        line = handed_on_line(arguments.launch_fd) if is_vllm else stdin.readline()
        if not line:
            return 0  # told to stop before it was told what to run
        reason = arguments.chosen_because
        if not is_vllm and arguments.emulate is None:
            try:
                reason = _choose_engine(line, lambda: stop.is_set() or leave.is_set())
            except _Stopped:
                return 0
            except CannotRun as error:
                return _fail(events, str(error))
        start = StageStart(
            shall_leave=leave.is_set, emulate=arguments.emulate, is_vllm=is_vllm, reason=reason
        )
        threading.Thread(
            target=_hear, args=(stdin, start.orders, stop), name="orders", daemon=True
        ).start()
        return run_stage(line, events, stop, start)
    finally:
        events.close()


def _choose_engine(line: bytes, is_stopped: Callable[[], bool]) -> str:
    """Why HelixWeb's own engine computes the stage; goes on elsewhere if it does not.

    Raises CannotRun, and _Stopped if the stage was told to end meanwhile.
    """
    try:
        launch = StageLaunch.model_validate_json(line)
    except ValidationError:
        return ""  # `run_stage` says what is wrong
    assignment = launch.assignment
    choice = choose_for(
        assignment.checkpoint, launch.engine, launch.weights, asked=assignment.engine
    )
    reason = str(choice.reason)
    if is_stopped():
        raise _Stopped
    if choice.engine is Engine.VLLM:
        go_on_in(launch.engine.python, "stage", line, reason)
    return reason


@dataclass(frozen=True, slots=True, kw_only=True)
class StageStart:
    """How a stage is run, beside its launch line.

    `shall_leave`: whether it must end as soon as its requests go on elsewhere. `orders`: what else
    must run beside it, heard before or while it serves. `emulate`: a file that describes the node
    to act as, instead of running a model. `is_vllm`: this is vLLM's environment. `reason`: why its
    engine computes the stage.
    """

    orders: SimpleQueue[Generation] = field(default_factory=SimpleQueue)
    shall_leave: Callable[[], bool] = lambda: False
    emulate: Path | None = None
    is_vllm: bool = False
    reason: str = ""


def _hear(stdin: io.FileIO, orders: SimpleQueue[Generation], stop: threading.Event) -> None:
    """Take orders until the agent closes the pipe."""
    rest = b""
    while chunk := stdin.read(_CHUNK_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            try:
                orders.put(Generation.of(AddOrder.model_validate_json(line).assignment))
            except ValidationError as error:
                logger.error("the agent wrote what is no order: %s", error)
    stop.set()


def run_stage(line: bytes, events: EventWriter, stop: threading.Event, start: StageStart) -> int:
    """Run what the launch line says until `stop`; what prevents it is reported in one event."""
    try:
        serve(StageLaunch.model_validate_json(line), events, stop, start)
    except _Stopped:
        return 0
    except ValidationError as error:
        wrong = first_complaint(error, whole="the line")
        return _fail(events, f"launch line: {wrong}; agent and stage must match")
    except (CannotRun, EmulationRefused, KeyFileError, OSError) as error:
        return _fail(events, str(error))
    except Exception as error:
        logger.exception("the stage failed")
        return _fail(events, f"{type(error).__name__}: {error}; the stage's log says more")
    return 0


def _fail(events: EventWriter, message: str) -> int:
    one_line = " ".join(message.split())
    logger.error("%s", one_line)
    events.write(FailedEvent(message=one_line))
    return 1


def serve(
    launch: StageLaunch, events: EventWriter, stop: threading.Event, start: StageStart
) -> None:
    """Load, report ready, and run the stage until `stop`, or until it has left.

    Raises CannotRun, EmulationRefused, KeyFileError and OSError for what the person who deployed
    can change.
    """
    assignment, shall_leave = launch.assignment, start.shall_leave
    emulation = None if start.emulate is None else read_emulation(start.emulate)
    keys = _load_keys(launch)
    opened = (
        _open_model(launch, events, lambda: stop.is_set() or shall_leave(), start)
        if emulation is None
        else _open_emulation(launch, emulation)
    )
    with ExitStack() as closing:
        closing.callback(opened.close)
        sockets = ZmqTransport(
            name=launch.name,
            bind=launch.bind,
            keys=keys,
            peers=assignment.peers,
            security=launch.data_security,
        )
        transport = sockets if emulation is None else EmulatedLinks(sockets, emulation)
        closing.callback(transport.close)
        stage = Stage(
            launch.name,
            opened,
            transport,
            assignment.options,
            generation=assignment.generation,
            peers=assignment.peers,
            process=_stage_process(launch, sockets, events, start, emulated=emulation is not None),
        )
        logger.info(
            "%s runs layers [%d, %d) with %d KV pages in steps of %d tokens on %s (%s)",
            launch.name,
            assignment.first,
            assignment.end,
            opened.backend.kv_manager.total,
            opened.limits.max_batch_tokens,
            opened.device,
            opened.backend.engine,
        )
        events.write(ReadyEvent(generation=assignment.generation, stats=stage.stats()))
        stage.run(stop.is_set)


def _stage_process(
    launch: StageLaunch,
    sockets: ZmqTransport,
    events: EventWriter,
    start: StageStart,
    *,
    emulated: bool,
) -> StageProcess:
    return StageProcess(
        incarnation=secrets.randbits(32),
        relative_speed=launch.relative_speed,
        core_delay=delay_reader(),
        cores_shared_by=lambda peers: None if emulated else _watch_cores(launch, peers),
        peer_events=sockets.watch(generation=launch.assignment.generation).take,
        on_step=sockets.works_on,
        # of an emulated node only the links that it acts as having would say anything
        link_stats=dict if emulated else sockets.link_stats,
        measure=sockets.measure,
        orders=start.orders,
        tell=events.write,
        meet=sockets.set_peers,
        departure=Departure(
            start.shall_leave, within_s=launch.leave_within_s, clock=time.monotonic
        ),
    )


def _watch_cores(launch: StageLaunch, peers: tuple[PeerAddress, ...]) -> SharedCores | None:
    options = launch.assignment.options
    read = core_reader(clock=time.monotonic)
    if read is None or not may_share_cores(peers, options):
        return None
    return SharedCores(read, threads=launch.threads, most=options.most_micro_batches)


def _open_model(
    launch: StageLaunch,
    events: EventWriter,
    is_stopped: Callable[[], bool],
    start: StageStart,
) -> Opened:
    def progress(done_bytes: int, total_bytes: int) -> None:
        if is_stopped():
            raise _Stopped
        events.write(
            LoadingEvent(
                generation=launch.assignment.generation,
                done_bytes=done_bytes,
                total_bytes=total_bytes,
            )
        )

    def end_at_once(message: str) -> None:
        # the stage's thread may be waiting in a sum for the rank that is lost
        _fail(events, message)
        events.close()
        os._exit(1)

    def tell_fetch(fetch: WeightFetch) -> None:
        events.write(FetchingEvent(fetch=fetch))

    if start.is_vllm:
        require_vllm()
        progress(0, 0)  # its imports take seconds
    with loading("runtime.engine.opening"):  # here: an emulated stage runs without torch
        from runtime.engine.opening import engine_class, open_stage

        engine = engine_class(is_vllm=start.is_vllm)
    return open_stage(
        launch,
        engine,
        reason=start.reason,
        progress=progress,
        on_lost=end_at_once,
        tell_fetch=tell_fetch,
    )


def _open_emulation(launch: StageLaunch, emulation: Emulation) -> Opened:
    assignment = launch.assignment
    if assignment.num_layers != emulation.model.num_layers:
        raise CannotRun(
            f"the plan is for {assignment.num_layers} layers, the emulated model has "
            f"{emulation.model.num_layers}; emulate the model that was planned for"
        )
    runner = EmulatedRunner(
        emulation,
        first=assignment.first,
        end=assignment.end,
        page_tokens=assignment.page_tokens,
    )
    return Opened(
        backend=runner,
        holdings=runner,
        limits=EngineLimits(
            page_tokens=assignment.page_tokens,
            max_batch_tokens=assignment.max_batch_tokens,
            max_context_tokens=assignment.max_context_tokens,
        ),
        device=f"an emulated {emulation.profile.gpu}",
    )


def _load_keys(launch: StageLaunch) -> KeyPair:
    keys = KeyPair.load(Path(launch.secret_key_file))
    if keys.public_key != launch.public_key:
        raise CannotRun(
            f"{launch.secret_key_file} is the secret key of {keys.public_key}, the node announced "
            f"{launch.public_key}; restart the agent so that it announces its key again"
        )
    return keys
