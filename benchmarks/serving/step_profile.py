"""Where the time of a decode step goes: parts of a stage's step, and torch's own profile of it.

python benchmarks/serving/step_profile.py [PARAMETERS.toml] [--streams 32] [--context 128]
    [--checkpoint DIRECTORY] [--first-stage]

A real stage sends and receives over loopback; another process plays the coordinator and, with
`--first-stage`, the stage behind it, which answers rows at once. Prints for each part of a step the
milliseconds of its thread's CPU time (median of the steps) and its share, and how long the thread
was between two calls of `run` by the wall clock: no step computes meanwhile.
"""

import argparse
import multiprocessing
import statistics
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Items
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import torch
from checkpoint import cached_checkpoint
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from planner.domain.cluster import COORDINATOR
from runtime.engine.backend import Opened, StepResult
from runtime.engine.grammar import Grammars
from runtime.engine.kv_cache import KvCache
from runtime.engine.limits import EngineLimits
from runtime.engine.model_backend import ModelBackend
from runtime.engine.model_runner import ModelRunner
from runtime.engine.sequence import Work
from runtime.engine.stage import Stage, _Ran
from runtime.models.config import read_config
from runtime.models.tiny_checkpoint import TinySizes
from runtime.models.weights import load_decoder
from runtime.protocol.control import PeerAddress
from runtime.protocol.data import DType, Entry, Flag, Hop, Kind, Message, Route, Sampling
from runtime.protocol.engine_options import EngineOptions
from runtime.protocol.sampled import pack_sampled
from runtime.transport.zmq_sockets import KeyPair
from runtime.transport.zmq_transport import ZmqTransport

HERE = Path(__file__).parent
PAGE_TOKENS = 16
STEPS = 20
_STAGE, _NEXT = "here", "next"
_TOKEN = 7


@dataclass(slots=True)
class Parts:
    """CPU seconds of one thread in each part of the steps so far; parts within parts are apart."""

    of_steps: list[dict[str, float]] = field(default_factory=list)
    gaps_s: list[float] = field(default_factory=list)  # between two `run`s, by the wall clock
    process_s: list[float] = field(default_factory=list)  # CPU of all threads, behind each `run`
    _open: list[str] = field(default_factory=list)
    _since_s: float = 0.0
    _ran_s: float | None = None

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        self._charge()
        self._open.append(name)
        try:
            yield
        finally:
            self._charge()
            self._open.pop()

    def begin_run(self) -> None:
        if self._ran_s is not None:
            self.gaps_s.append(time.perf_counter() - self._ran_s)

    def end_run(self) -> None:
        """A step begins with what follows the layers of the step before."""
        self._ran_s = time.perf_counter()
        self._charge()
        self.of_steps.append({})
        self.process_s.append(time.process_time())

    def _charge(self) -> None:
        now_s = time.thread_time()
        if self._open and self.of_steps:
            step, name = self.of_steps[-1], self._open[-1]
            step[name] = step.get(name, 0.0) + now_s - self._since_s
        self._since_s = now_s


class TimedBackend(ModelBackend):
    """Samples as its own part."""

    parts: Parts

    def behind_layers(self, step: Items[Work], hidden_TD: Tensor) -> Callable[[], StepResult]:
        with self.parts.part("sample"):
            begun = super().behind_layers(step, hidden_TD)

        def result() -> StepResult:
            with self.parts.part("sample"):
                return begun()

        return result


class TimedStage(Stage):
    """Charges `parts` with what it does."""

    parts: Parts
    backend: TimedBackend

    def _look_around(self) -> None:
        with self.parts.part("look around"):
            super()._look_around()

    def _admit(self) -> None:
        with self.parts.part("admit"):
            super()._admit()

    def _build_batch(self) -> list[Work]:
        with self.parts.part("build batch"):
            return super()._build_batch()

    def _run(self, step: list[Work]) -> _Ran | None:
        self.parts.begin_run()
        with self.parts.part("run"):
            ran = super()._run(step)
        self.parts.end_run()
        return ran

    def _send_rows_and_tokens(self, step: list[Work], ran: _Ran) -> None:
        with self.parts.part("send"):
            super()._send_rows_and_tokens(step, ran)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parameters", type=Path, nargs="?", default=HERE / "parameters.toml")
    parser.add_argument("--checkpoint", type=Path, help="instead of a random one of PARAMETERS")
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument(
        "--first-stage", action="store_true", help="half of the layers; the rows go on"
    )
    parser.add_argument(
        "--cache", type=Path, default=Path(tempfile.gettempdir()) / "helixweb-serving"
    )
    options = parser.parse_args()
    parameters = tomllib.loads(options.parameters.read_text())
    torch.set_num_threads(len(parameters["cores"]))
    checkpoint = options.checkpoint or cached_checkpoint(
        options.cache, TinySizes(**parameters["model"])
    )
    num_layers = read_config(checkpoint).num_layers
    layers = range(num_layers // 2 if options.first_stage else num_layers)
    keys = {name: KeyPair.generate() for name in (_STAGE, COORDINATOR, _NEXT)}
    here, there = multiprocessing.Pipe()
    others = multiprocessing.get_context("spawn").Process(
        target=_play_others,
        args=(there, keys, num_layers, len(layers), options.streams, options.context),
        daemon=True,
    )
    others.start()
    transport = ZmqTransport(name=_STAGE, bind="tcp://127.0.0.1:0", keys=keys[_STAGE])
    here.send(transport.endpoint)
    peers = here.recv()
    transport.set_peers(peers)
    parts = Parts()
    stage = _stage(checkpoint, layers, options, transport, peers, parts)
    here.send("ready")
    _decode(stage, parts, steps=options.streams + 2)  # every prompt has been run by then
    parts = Parts()
    _decode(stage, parts, steps=STEPS)
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        _decode(stage, Parts(), steps=STEPS)
    print(profiled.key_averages().table(sort_by="self_cpu_time_total", row_limit=15))
    _report(parts, streams=options.streams)
    transport.close()
    here.send("end")
    others.join()


def _decode(stage: TimedStage, parts: Parts, *, steps: int) -> None:
    stage.parts = parts
    stage.backend.parts = parts
    stage.run(lambda: len(parts.of_steps) > steps)


def _report(parts: Parts, *, streams: int) -> None:
    steps = parts.of_steps[:-1]  # the last has not been run
    total_ms = 1e3 * statistics.median(sum(step.values()) for step in steps)
    print(f"{streams} streams, {len(steps)} steps")
    for name in ("run", "sample", "send", "look around", "admit", "build batch"):
        spent_ms = 1e3 * statistics.median(step.get(name, 0.0) for step in steps)
        print(f"{name:12} {spent_ms:8.3f} ms {100 * spent_ms / total_ms:6.2f} %")
    print(f"{'all':12} {total_ms:8.3f} ms")
    spent_s = parts.process_s[-1] - parts.process_s[0]
    other_s = (spent_s - sum(sum(step.values()) for step in steps)) / len(steps)
    print(f"other threads of the process, CPU time {1e3 * other_s:.3f} ms")
    print(f"between two runs, wall clock {1e3 * statistics.median(parts.gaps_s):.3f} ms")


def _stage(
    checkpoint: Path,
    layers: range,
    options: argparse.Namespace,
    transport: ZmqTransport,
    peers: tuple[PeerAddress, ...],
    parts: Parts,
) -> TimedStage:
    config = read_config(checkpoint)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    decoder = load_decoder(
        checkpoint,
        config,
        first=layers.start,
        end=layers.stop,
        device=device,
        progress=lambda _done, _total: None,
    )
    limits = EngineLimits(
        page_tokens=PAGE_TOKENS,
        max_batch_tokens=512,
        max_context_tokens=config.max_position_embeddings,
    )
    blocks = -(-(options.context + options.streams + 2 * STEPS + 9) // PAGE_TOKENS)
    pages = len(layers) * (options.streams + 1) * blocks
    cache = KvCache(config, pages=pages, page_tokens=PAGE_TOKENS, device=device)
    backend = TimedBackend(
        ModelRunner(decoder, cache, max_context_tokens=limits.max_context_tokens),
        grammars=Grammars(checkpoint, vocab_size=config.vocab_size),
    )
    backend.parts = parts
    stage = TimedStage(
        _STAGE,
        Opened(backend=backend, limits=limits),
        transport,
        EngineOptions(),
        generation=1,
        peers=peers,
    )
    stage.parts, stage.backend = parts, backend
    return stage


def _play_others(
    pipe: Connection,
    keys: dict[str, KeyPair],
    num_layers: int,
    border: int,
    streams: int,
    context: int,
) -> None:
    """The coordinator, which asks for `streams` answers, and the stage behind `border`."""
    transports = {
        name: ZmqTransport(name=name, bind="tcp://127.0.0.1:0", keys=keys[name])
        for name in (COORDINATOR, _NEXT)
    }
    endpoints = {name: transport.endpoint for name, transport in transports.items()}
    endpoints[_STAGE] = pipe.recv()
    peers = tuple(
        PeerAddress(name=name, endpoint=endpoint, public_key=keys[name].public_key)
        for name, endpoint in endpoints.items()
    )
    for transport in transports.values():
        transport.set_peers(peers)
    pipe.send(peers)
    pipe.recv()
    for number in range(streams):
        transports[COORDINATOR].send(_STAGE, _prompt(number, num_layers, border, context))
    while not pipe.poll():
        waits = 0.2 if border < num_layers else 0.0
        for received in transports[_NEXT].receive(timeout_s=waits):
            if received.message.kind == Kind.ROWS:
                transports[_NEXT].send(_STAGE, _answer(received.message))
        transports[COORDINATOR].receive(timeout_s=0.2 - waits)
    for transport in transports.values():
        transport.close()


def _prompt(number: int, num_layers: int, border: int, context: int) -> Message:
    hops = [Hop(node=_STAGE, first=0, end=border)]
    if border < num_layers:
        hops.append(Hop(node=_NEXT, first=border, end=num_layers))
    sampling = Sampling(temperature=0.0, top_p=1.0, top_k=0, seed=0, max_tokens=10_000)
    token_ids = np.random.default_rng(number).integers(8, 200, context).astype("<i4")
    entry = Entry(
        request=number,
        epoch=0,
        position=0,
        n_tokens=context,
        hop=0,
        flags=Flag.PROMPT_END,
        route=Route(hops=tuple(hops), sampling=sampling, prompt_tokens=context),
    )
    return Message(
        kind=Kind.PROMPT,
        generation=1,
        entries=(entry,),
        dtype=DType.INT32,
        payload=token_ids.tobytes(),
    )


def _answer(rows: Message) -> Message:
    """A token for each request of which all rows have come."""
    ends = [entry for entry in rows.entries if Flag.PROMPT_END in entry.flags]
    return Message(
        kind=Kind.SAMPLED,
        generation=1,
        entries=tuple(
            Entry(
                request=entry.request,
                epoch=entry.epoch,
                position=entry.position + entry.n_tokens,
                n_tokens=1,
                hop=0,
            )
            for entry in ends
        ),
        dtype=DType.INT32,
        payload=pack_sampled([_TOKEN] * len(ends), [None] * len(ends)),
    )


if __name__ == "__main__":
    main()
