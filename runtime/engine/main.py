"""`python -m runtime stage`: the process an agent starts to run its node's layers.

Reads one launch line on stdin, writes event lines on stdout (`protocol.stage_pipe`), logs on
stderr. The end of stdin or SIGTERM means stop: exit 0. What it cannot run: `failed`, exit 1.
"""

import argparse
import io
import logging
import secrets
import signal
import sys
import threading
from pathlib import Path

import torch
from pydantic import ValidationError

from runtime.engine.event_writer import EventWriter
from runtime.engine.grammar import Grammars
from runtime.engine.kv_cache import KvCache
from runtime.engine.memory import BudgetTooSmall, EngineLimits, fit_step, kv_pages
from runtime.engine.model_backend import ModelBackend
from runtime.engine.stage import Stage
from runtime.models.checkpoint import CheckpointError
from runtime.models.config import ModelConfig, read_config
from runtime.models.decoder import Decoder
from runtime.models.weights import load_decoder
from runtime.protocol.control import StageAssignment
from runtime.protocol.stage_pipe import (
    FailedEvent,
    LoadingEvent,
    ReadyEvent,
    StageLaunch,
    StatsEvent,
    parse_launch,
)
from runtime.transport.keys import KeyFileError, KeyPair
from runtime.transport.zmq_transport import ZmqTransport

logger = logging.getLogger(__name__)


class LaunchRefused(Exception):
    """A launch line that contradicts itself, its checkpoint or its key."""


class _Stopped(Exception):
    """Asked to stop while loading."""


def main(argv: list[str]) -> int:
    """Run until told to stop; returns the exit status."""
    argparse.ArgumentParser(prog="python -m runtime stage", description=__doc__).parse_args(argv)
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())
    # unbuffered: a thread that waits in a buffered read would hold a lock the exit needs
    stdin = io.FileIO(sys.stdin.fileno(), closefd=False)
    events = EventWriter(sys.stdout.buffer, on_broken=stop.set)
    try:
        line = stdin.readline()
        if not line:
            return 0  # told to stop before it was told what to run
        threading.Thread(target=_stop_at_end, args=(stdin, stop), daemon=True).start()
        return run_stage(line, events, stop)
    finally:
        events.close()


def _stop_at_end(stdin: io.FileIO, stop: threading.Event) -> None:
    while stdin.read(4096):
        logger.warning("a stage expects one line on stdin; ignoring what follows")
    stop.set()


def run_stage(line: bytes, events: EventWriter, stop: threading.Event) -> int:
    """Run what the launch line says until `stop`; what prevents it is told in one event."""
    try:
        serve(parse_launch(line), events, stop)
    except _Stopped:
        return 0
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the line"
        return _fail(events, f"launch line: {where}: {first['msg']}; agent and stage must match")
    except (LaunchRefused, CheckpointError, BudgetTooSmall, KeyFileError, OSError) as error:
        return _fail(events, str(error))
    except (MemoryError, torch.OutOfMemoryError) as error:
        return _fail(events, f"out of memory ({error}); lower the node's memory budget")
    except Exception as error:
        logger.exception("the stage failed")
        return _fail(events, f"{type(error).__name__}: {error}; the stage's log says more")
    return 0


def _fail(events: EventWriter, message: str) -> int:
    one_line = " ".join(message.split())
    logger.error("%s", one_line)
    events.write(FailedEvent(message=one_line))
    return 1


def serve(launch: StageLaunch, events: EventWriter, stop: threading.Event) -> None:
    """Load, report ready, and run the stage until `stop`.

    Raises LaunchRefused, CheckpointError, BudgetTooSmall, KeyFileError and OSError for what the
    person who deployed can mend.
    """
    assignment = launch.assignment
    torch.set_num_threads(launch.threads)
    keys = _load_keys(launch)
    config = read_config(Path(assignment.checkpoint))
    _check_assignment(assignment, config)
    limits = fit_step(
        config,
        EngineLimits(
            page_tokens=assignment.page_tokens,
            max_batch_tokens=assignment.max_batch_tokens,
            max_context_tokens=assignment.max_context_tokens,
        ),
        memory_budget_bytes=launch.memory_budget_bytes,
    )
    pages = kv_pages(
        config,
        limits,
        memory_budget_bytes=launch.memory_budget_bytes,
        first=assignment.first,
        end=assignment.end,
    )
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    decoder = _load(assignment, config, device, events, stop)
    cache = KvCache(config, pages=pages, page_tokens=assignment.page_tokens, device=device)
    transport = ZmqTransport(name=launch.name, bind=launch.bind, keys=keys, peers=assignment.peers)
    try:
        stage = Stage(
            name=launch.name,
            generation=assignment.generation,
            incarnation=secrets.randbits(32),
            limits=limits,
            backend=ModelBackend(
                decoder,
                cache,
                max_context_tokens=limits.max_context_tokens,
                grammars=Grammars(Path(assignment.checkpoint), vocab_size=config.vocab_size),
            ),
            transport=transport,
            options=assignment.options,
            relative_speed=launch.relative_speed,
            on_report=lambda stats: events.write(StatsEvent(stats=stats)),
        )
        logger.info(
            "%s runs layers [%d, %d) with %d KV pages in steps of %d tokens on %s",
            launch.name,
            assignment.first,
            assignment.end,
            pages,
            limits.max_batch_tokens,
            device,
        )
        events.write(ReadyEvent(stats=stage.stats()))
        stage.run(stop.is_set)
    finally:
        transport.close()


def _load_keys(launch: StageLaunch) -> KeyPair:
    keys = KeyPair.load(Path(launch.secret_key_file))
    if keys.public_key != launch.public_key:
        raise LaunchRefused(
            f"{launch.secret_key_file} is the secret key of {keys.public_key}, the node announced "
            f"{launch.public_key}; restart the agent so that it announces its key anew"
        )
    return keys


def _check_assignment(assignment: StageAssignment, config: ModelConfig) -> None:
    if assignment.num_layers != config.num_layers:
        raise LaunchRefused(
            f"the plan is for {assignment.num_layers} layers, {assignment.checkpoint} has "
            f"{config.num_layers}; plan again for this checkpoint"
        )
    if assignment.max_context_tokens > config.max_position_embeddings:
        raise LaunchRefused(
            f"max_context_tokens is {assignment.max_context_tokens}, {assignment.checkpoint} "
            f"knows {config.max_position_embeddings} positions; deploy with a shorter context"
        )


def _load(
    assignment: StageAssignment,
    config: ModelConfig,
    device: torch.device,
    events: EventWriter,
    stop: threading.Event,
) -> Decoder:
    def progress(done_bytes: int, total_bytes: int) -> None:
        if stop.is_set():
            raise _Stopped
        events.write(LoadingEvent(done_bytes=done_bytes, total_bytes=total_bytes))

    return load_decoder(
        Path(assignment.checkpoint),
        config,
        first=assignment.first,
        end=assignment.end,
        device=device,
        progress=progress,
    )
