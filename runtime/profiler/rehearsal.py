"""What a stage does beside its layers, measured by one that serves requests made up here.

A real stage runs the checkpoint's last layer behind the real transport, over this machine's own
network. A process of its own (`played_neighbours`) is the stage before it and the coordinator. So
logits and tokens, the loop around the steps and the hop between two processes take what they take
while requests are served.
"""

import multiprocessing
import statistics
from collections.abc import Callable, Sequence
from collections.abc import Sequence as Items
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from runtime.engine.backend import Opened, StepResult
from runtime.engine.grammar import Grammars
from runtime.engine.limits import EngineLimits
from runtime.engine.model_backend import ModelBackend
from runtime.engine.opening import AnyEngine
from runtime.engine.sequence import Work
from runtime.engine.stage import Stage
from runtime.engine.step_runner import StepRunner
from runtime.profiler.played_neighbours import GENERATION, MEASURED, REQUESTS, Scene, play
from runtime.protocol.control import PeerAddress
from runtime.protocol.data import Kind, Message
from runtime.protocol.engine_options import EngineOptions
from runtime.transport.base import Received, Transport
from runtime.transport.zmq_sockets import KeyPair
from runtime.transport.zmq_transport import ZmqTransport

_ROUNDS = 40
_START_S = 60.0  # for the other process, on a machine that has much to do
_LOOPBACK = "tcp://127.0.0.1:0"


class NoAnswer(RuntimeError):
    """The other process ended early: it got no token for a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """Medians, as `planner.domain.layer_times` counts them."""

    head_s: float
    handling_s: float
    hop_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Of the stage, from when it took rows until it sent the last message of their tokens: in
    layers, behind them, and all of it."""

    layers_s: float
    head_s: float
    whole_s: float

    @property
    def handling_s(self) -> float:
        """Beside its step."""
        return max(0.0, self.whole_s - self.layers_s - self.head_s)


def rehearse(
    checkpoint: Path,
    engine: AnyEngine,
    *,
    limits: EngineLimits,
    clock: Callable[[], float],
    rest_s: float,
) -> Beside:
    """Serve for some rounds, each after a rest; a model of one layer has no stages. `clock` is in
    seconds. Raises what opening the layer raises, and NoAnswer."""
    rounds = min(_ROUNDS, limits.max_context_tokens - 2)
    num_layers = engine.sizes.num_layers
    if num_layers < 2 or rounds < 1:
        return Beside(head_s=0.0, handling_s=0.0, hop_s=0.0)
    last = engine.fetch_and_read(range(num_layers - 1, num_layers), limits)
    runner = last.runner(pages=REQUESTS * (limits.context_pages + 1))
    grammars = Grammars(checkpoint, vocab_size=engine.sizes.vocab_size)
    backend = _TimedBackend(runner, grammars=grammars, clock=clock)
    turns, rounds_s = _served(backend, limits=limits, clock=clock, rounds=rounds, rest_s=rest_s)
    return beside(turns, rounds_s)


def beside(turns: Sequence[Turn], rounds_s: Sequence[float]) -> Beside:
    """`rounds_s`: how long from when rows are sent until their tokens are there, turn by turn."""
    return Beside(
        head_s=statistics.median(turn.head_s for turn in turns),
        handling_s=statistics.median(turn.handling_s for turn in turns),
        hop_s=statistics.median(
            max(0.0, round_s - turn.whole_s) / 2
            for turn, round_s in zip(turns, rounds_s, strict=True)
        ),
    )


def _served(
    backend: "_TimedBackend",
    *,
    limits: EngineLimits,
    clock: Callable[[], float],
    rounds: int,
    rest_s: float,
) -> tuple[list[Turn], list[float]]:
    """The stage's turns and the rounds' durations; without the first, which is the prompts'."""
    ours, theirs = KeyPair.generate(), KeyPair.generate()
    here, there = multiprocessing.get_context("spawn").Pipe()
    with ExitStack() as closing:
        closing.callback(here.close)
        sockets = ZmqTransport(name=MEASURED, bind=_LOOPBACK, keys=ours)
        closing.callback(sockets.close)
        scene = Scene(
            secret_key=theirs.secret_key,
            stage=PeerAddress(name=MEASURED, endpoint=sockets.endpoint, public_key=ours.public_key),
            shape=backend.shape,
            max_context_tokens=limits.max_context_tokens,
            rounds=rounds,
            rest_s=rest_s,
        )
        process = multiprocessing.get_context("spawn").Process(
            target=play, args=(there, scene), daemon=True
        )
        process.start()
        closing.callback(process.join)
        closing.callback(process.kill)
        there.close()
        peers = tuple(_heard(here))
        sockets.set_peers(peers)
        transport = _WatchedTransport(sockets, backend, clock=clock)
        stage = Stage(
            MEASURED,
            Opened(backend=backend, limits=limits),
            transport,
            EngineOptions(),
            generation=GENERATION,
            peers=peers,
        )
        here.send("ready")
        stage.run(here.poll)
        rounds_s = _heard(here)
    return transport.turns[1:], rounds_s[1:]


def _heard(connection: Connection) -> list[Any]:
    try:
        if connection.poll(_START_S):
            found: list[Any] = connection.recv()
            return found
    except EOFError:
        pass
    raise NoAnswer("the process that plays the neighbours of a stage ended, or did not start")


class _WatchedTransport:
    """Implements `Transport`: notes the turns of its stage, from taking rows to sending tokens."""

    def __init__(
        self, transport: Transport, backend: "_TimedBackend", *, clock: Callable[[], float]
    ) -> None:
        self.turns: list[Turn] = []
        self._transport = transport
        self._backend = backend
        self._clock = clock
        self._took_s = 0.0

    def send(self, peer: str, message: Message) -> None:
        # Before it goes: who gets it may run first, on the core of this process.
        if message.kind is Kind.SAMPLED:
            self.turns[-1] = Turn(
                layers_s=self._backend.layers_s,
                head_s=self._backend.head_s,
                whole_s=self._clock() - self._took_s,
            )
        self._transport.send(peer, message)

    def receive(self, *, timeout_s: float) -> list[Received]:
        received = self._transport.receive(timeout_s=timeout_s)
        if any(one.message.kind is Kind.ROWS for one in received):
            self._took_s = self._clock()
            self.turns.append(Turn(layers_s=0.0, head_s=0.0, whole_s=0.0))
        return received

    def close(self) -> None:
        self._transport.close()


class _TimedBackend(ModelBackend):
    """Notes how long layers took in the last step, and what comes behind them."""

    def __init__(
        self, runner: StepRunner, *, grammars: Grammars, clock: Callable[[], float]
    ) -> None:
        super().__init__(runner, grammars=grammars)
        self.layers_s = self.head_s = 0.0
        self._timed = runner
        self._clock = clock

    @property
    def runs_beside(self) -> bool:
        return False  # its times are of the step alone

    def begin(self, step: Items[Work]) -> Callable[[], StepResult]:
        return partial(self._timed_run, step)

    def _timed_run(self, step: Items[Work]) -> StepResult:
        began_s = self._clock()
        hidden_TD = self._timed.forward(step)
        if hidden_TD.is_cuda:
            torch.cuda.synchronize()
        ran_s = self._clock()
        result = self.behind_layers(step, hidden_TD)()
        self.layers_s, self.head_s = ran_s - began_s, self._clock() - ran_s
        return result
