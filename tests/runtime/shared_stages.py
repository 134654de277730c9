"""Stages without a model that several coordinators use at once, in one process and a time of ours.

Stages, pages, dispatchers and books are the real ones; messages pass `encode` and `decode`.
"""

import itertools
import random
from collections.abc import Callable, Iterable
from pathlib import Path

from coordinator_doubles import routing, see, serving_plan
from emulated_cluster import LAYERS, NeverWaits, emulation_of
from in_memory_network import InMemoryNetwork

from planner.domain.cluster import SINK, SOURCE
from planner.domain.placement import LayerRange, Placement
from runtime.coordinator.dispatcher import Dispatcher
from runtime.coordinator.live_request import LiveRequest
from runtime.coordinator.request_stats import RequestStats
from runtime.coordinator.serving import Serving
from runtime.coordinator.tokenizer import load_tokenizer
from runtime.engine.backend import Opened
from runtime.engine.emulated_runner import EmulatedRunner
from runtime.engine.generation import Generation
from runtime.engine.limits import EngineLimits
from runtime.engine.stage import Stage
from runtime.engine.stage_process import StageProcess
from runtime.protocol.control import PeerAddress
from runtime.protocol.data import Kind, Message, Sampling
from runtime.protocol.engine_options import EngineOptions
from runtime.transport.heartbeats import Loss, PeerEvent

FIRST, SECOND = "coordinator", "coordinator:2"
GENERATION = 7
PAGE_TOKENS = 4
CONTEXT = 256
VOCABULARY = 261  # of the checkpoint of the doubles
TURN_S = 0.02
# Two ways in, one way out, so that requests meet on a stage that they came to by different ones.
STAGES = {"a": (0, 4), "b": (0, 4), "c": (4, LAYERS)}
WEIGHTS = {SOURCE: {"a": 1.0, "b": 1.0}, "a": {"c": 1.0}, "b": {"c": 1.0}, "c": {SINK: 1.0}}


class Front:
    """One coordinator; `heard` are the messages that stages sent to it."""

    def __init__(self, name: str, cluster: "SharedStages", *, generation: int) -> None:
        self.name = name
        self.cluster = cluster
        self.transport = cluster.network.join(name)
        self.heard: list[Message] = []
        self.is_frozen = False
        ids = random.Random(name)
        self.dispatcher = Dispatcher(
            transport=self.transport,
            stats=RequestStats(window_s=10.0, clock=cluster.clock),
            clock=cluster.clock,
            new_request_id=lambda: ids.getrandbits(63),
            request_timeout_s=600.0,
        )
        self.follow(generation)

    def follow(self, generation: int) -> None:
        """Serve that generation as soon as it is up."""
        checkpoint, clock = self.cluster.checkpoint, self.cluster.clock
        self.serving = Serving(
            plan=serving_plan(
                checkpoint,
                num_layers=LAYERS,
                placement=Placement(
                    layers={name: LayerRange(first=a, end=b) for name, (a, b) in STAGES.items()}
                ),
                routing_weights=WEIGHTS,
                max_context_tokens=CONTEXT,
                page_tokens=PAGE_TOKENS,
                max_queued_requests=1000,
                generation=generation,
                peers=addresses(STAGES),
            ),
            tokenizer=load_tokenizer(checkpoint),
            routing=routing(clock=clock),
            before=self.dispatcher.serving,
        )
        self.dispatcher.serve(self.serving)
        see(self.dispatcher, *STAGES)

    def ask(self, *, seed: int, prompt_tokens: int = 20, output_tokens: int = 20) -> LiveRequest:
        return self.dispatcher.submit(
            self.dispatcher.plans.ready(),
            prompt_ids=[5 + (seed + index) % 200 for index in range(prompt_tokens)],
            sampling=Sampling(temperature=1, top_p=1, top_k=0, seed=seed, max_tokens=output_tokens),
            stop_strings=(),
        )

    def turn(self) -> None:
        if self.is_frozen:
            return
        for received in self.transport.receive(timeout_s=0):
            self.heard.append(received.message)
            self.dispatcher.receive(received)

    def say(self, kind: Kind, *nodes: str, message: Message | None = None) -> None:
        """A message of `kind` of the generation to these stages."""
        for node in nodes or STAGES:
            self.transport.send(node, message or Message(kind=kind, generation=GENERATION))

    def count(self, kind: Kind) -> int:
        return sum(message.kind is kind for message in self.heard)


def addresses(names: Iterable[str]) -> tuple[PeerAddress, ...]:
    return tuple(
        PeerAddress(name=name, endpoint="tcp://127.0.0.1:1", public_key="k" * 40) for name in names
    )


class SharedStages:
    """The stages and their coordinators; a turn of all lasts `TURN_S`."""

    def __init__(
        self, checkpoint: Path, *, pages: int = 4000, coordinators: Iterable[str] = (FIRST, SECOND)
    ) -> None:
        self.checkpoint = checkpoint
        self.network = InMemoryNetwork()
        self.now_s = 1000.0
        self._turns = itertools.count(1)
        names = tuple(coordinators)
        self._news: dict[str, list[PeerEvent]] = {name: [] for name in STAGES}
        self.pages = pages
        self.most_used = 0
        runners = {
            name: EmulatedRunner(
                emulation_of(pages=pages, page_tokens=PAGE_TOKENS, vocab_size=VOCABULARY),
                first=first,
                end=end,
                page_tokens=PAGE_TOKENS,
                clock=lambda: 0.0,
                sleep=lambda _: None,
            )
            for name, (first, end) in STAGES.items()
        }
        self.processes = {
            name: StageProcess(
                peer_events=self._taker(name), clock=self.clock, sleep=lambda _: None
            )
            for name in STAGES
        }
        self.stages = {
            name: Stage(
                name,
                Opened(
                    backend=runner,
                    limits=EngineLimits(
                        page_tokens=PAGE_TOKENS, max_batch_tokens=256, max_context_tokens=CONTEXT
                    ),
                    holdings=runner,
                ),
                NeverWaits(self.network.join(name)),
                EngineOptions(),
                generation=GENERATION,
                peers=addresses((*STAGES, *names)),
                process=self.processes[name],
            )
            for name, runner in runners.items()
        }
        self.fronts = {name: Front(name, self, generation=GENERATION) for name in names}
        for name in names:
            self.see(name, None)
        self.until(lambda: all(front.serving.is_up for front in self.fronts.values()), within_s=5.0)

    def clock(self) -> float:
        return self.now_s

    def join(self, name: str, *, generation: int) -> None:
        """One more coordinator, for which the stages begin a generation of the same layers."""
        self.fronts[name] = Front(name, self, generation=generation)
        self.see(name, None)
        for stage, (first, end) in STAGES.items():
            self.processes[stage].orders.put(
                Generation(
                    number=generation,
                    layers=range(first, end),
                    peers=addresses((*STAGES, *self.fronts)),
                )
            )

    def see(self, name: str, loss: Loss | None) -> None:
        """What every stage sees of a coordinator's process."""
        for news in self._news.values():
            news.append(PeerEvent(peer=name, loss=loss, silent_s=0.0))

    def kill(self, name: str) -> None:
        self.fronts.pop(name)
        self.network.leave(name)
        self.see(name, Loss.ENDED)

    def turn(self) -> None:
        for stage in self.stages.values():
            turns = iter((False, True))
            stage.run(lambda turns=turns: next(turns))
            self.most_used = max(self.most_used, stage.stats().kv_pages_used)
        for front in self.fronts.values():
            front.turn()
            if next(self._turns) % 50 == 0:
                front.dispatcher.expire()
        self.now_s += TURN_S

    def turns(self, seconds: float) -> None:
        for _ in range(round(seconds / TURN_S)):
            self.turn()

    def until(self, condition: Callable[[], bool], *, within_s: float = 60.0) -> None:
        ends_s = self.now_s + within_s
        while not condition():
            assert self.now_s < ends_s, f"not within {within_s} s"
            self.turn()

    def used(self) -> dict[str, int]:
        """Pages of requests by stage; the books are right."""
        for stage in self.stages.values():
            stage.check_pages()
        return {name: stage.stats().kv_pages_used for name, stage in self.stages.items()}

    def _taker(self, name: str) -> Callable[[], list[PeerEvent]]:
        def take() -> list[PeerEvent]:
            news, self._news[name] = self._news[name], []
            return news

        return take
