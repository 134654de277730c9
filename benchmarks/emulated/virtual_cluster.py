"""Emulated nodes around a real coordinator, in virtual time.

Real: dispatcher, router, KV estimate and admission; each stage's loop, intake, batcher, pages and
decode cap; the frames they exchange, handed over without sockets. Emulated: how long a step takes,
and links. Nothing waits for a real clock, so nothing lags behind: an agenda of moments is worked
off, and every stage has a clock of its own, which its steps move.
"""

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from planner.domain.cluster import COORDINATOR
from planner.domain.placement import LayerRange, Placement
from planner.domain.problem import Problem
from planner.routers.choice import RouterName
from runtime.coordinator.dispatcher import Dispatcher
from runtime.coordinator.live_request import LiveRequest
from runtime.coordinator.request_stats import RequestStats
from runtime.coordinator.serving import Routing, Serving
from runtime.coordinator.tokenizer import CheckpointTokenizer
from runtime.engine.backend import Opened
from runtime.engine.emulated_link_queue import LinkQueue
from runtime.engine.emulated_runner import EmulatedRunner
from runtime.engine.limits import EngineLimits
from runtime.engine.stage import REPORT_INTERVAL_S, Stage
from runtime.engine.stage_process import StageProcess
from runtime.protocol.control import ServingPlan
from runtime.protocol.data import Entry, Kind, Message, Sampling
from runtime.protocol.emulation import EmulatedLink, EmulatedNetwork, Emulation
from runtime.protocol.engine_options import EngineOptions
from runtime.transport.base import Received
from runtime.transport.heartbeats import PeerEvent

REQUEST_TIMEOUT_S = 600.0
_GENERATION = 1
_TICK_S = 1.0
_STATS_WINDOW_S = 10.0
_VOCABULARY = 256
_CLIENT_LIMIT = 1 << 20  # clients set no limit: the coordinator shall not foresee an answer's end


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSetup:
    """A placement and how it is served. `options` and `transmission` are the policy."""

    problem: Problem
    placement: Placement
    partial_inference: bool
    routing_weights: dict[str, dict[str, float]]
    router: RouterName
    options: dict[str, EngineOptions]
    transmission: Literal["fifo", "decode_first"]
    host_copy_s_per_byte: float
    kv_high_water: float
    page_tokens: int
    max_batch_tokens: int
    max_context_tokens: int
    seed: int


class Agenda:
    """What is to be done when; the clock of the coordinator and the links."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._entries: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def at(self, moment_s: float, act: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._entries, (moment_s, self._count, act))

    def run(self, *, until_s: float) -> None:
        while self._entries and self._entries[0][0] <= until_s:
            self.now_s, _, act = heapq.heappop(self._entries)
            act()
        self.now_s = until_s


class _Wires:
    """Every directed link, made when it is first used."""

    def __init__(
        self,
        agenda: Agenda,
        network_of: Callable[[str], EmulatedNetwork],
        hand_over: Callable[[str, str, Message], None],
    ) -> None:
        self._agenda = agenda
        self._network_of = network_of
        self._hand_over = hand_over
        self._queues: dict[tuple[str, str], LinkQueue] = {}
        self._due_s: dict[tuple[str, str], float] = {}

    def send(self, source: str, target: str, message: Message) -> None:
        """Now, on the agenda's clock."""
        ends = (source, target)
        queue = self._queues.get(ends)
        if queue is None:
            queue = self._queues[ends] = LinkQueue(target, self._network_of(source))
        self._advance(ends, queue)
        queue.push(message, now_s=self._agenda.now_s)
        self._foresee(ends, queue)

    def _advance(self, ends: tuple[str, str], queue: LinkQueue) -> None:
        for message in queue.advance(self._agenda.now_s):
            self._hand_over(*ends, message)

    def _foresee(self, ends: tuple[str, str], queue: LinkQueue) -> None:
        next_s = queue.next_s()
        if next_s is not None and next_s < self._due_s.get(ends, float("inf")):
            self._due_s[ends] = next_s
            self._agenda.at(next_s, lambda: self._due(ends, queue, next_s))

    def _due(self, ends: tuple[str, str], queue: LinkQueue, moment_s: float) -> None:
        if self._due_s.get(ends) == moment_s:
            del self._due_s[ends]
        self._advance(ends, queue)
        self._foresee(ends, queue)


class _Stage(Stage):
    """Never waits, and checks its pages when asked to: once a second took a third of a run."""

    def _patience_s(self) -> float:
        return 0.0

    def check_pages(self) -> None:
        """`VirtualCluster.check_pages` does."""


class _Node:
    """A stage with its clock; implements `Transport`. It sends when its step has ended."""

    def __init__(self, name: str, agenda: Agenda, wires: _Wires) -> None:
        self.name = name
        self.now_s = 0.0
        self.stage: Stage
        self._agenda = agenda
        self._wires = wires
        self._inbox: list[Received] = []
        self._turns = 0
        self._sleeps = True

    def clock(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def send(self, peer: str, message: Message) -> None:
        self._agenda.at(self.now_s, lambda: self._wires.send(self.name, peer, message))

    def receive(self, *, timeout_s: float) -> list[Received]:
        """What is there; whether to wait is `turn`'s business."""
        received, self._inbox = self._inbox, []
        return received

    def close(self) -> None:
        """Nothing is held."""

    def deliver(self, received: Received) -> None:
        self._inbox.append(received)
        if self._sleeps:
            self._sleeps = False
            self._turn_at(self._agenda.now_s)

    def turn(self) -> None:
        """Report, receive, run a step; and again at its end, or at the next message or report."""
        self.now_s = self._agenda.now_s
        turns = iter((False, True))
        self.stage.run(lambda: next(turns))
        self._sleeps = self.now_s == self._agenda.now_s and not self.stage.has_work
        self._turn_at(self.now_s + (REPORT_INTERVAL_S if self._sleeps else 0.0))

    def _turn_at(self, moment_s: float) -> None:
        self._turns += 1
        number = self._turns
        self._agenda.at(moment_s, lambda: self.turn() if number == self._turns else None)


class VirtualCluster:
    """The stages of a placement and their coordinator. `heard` gets every message for it.

    An answer ends where its request says, by its stages' limit of tokens: as with a model that ends
    it, the coordinator does not know beforehand.
    """

    def __init__(self, setup: ClusterSetup) -> None:
        self._setup = setup
        self.agenda = Agenda()
        self._wires = _Wires(self.agenda, self._network_of, self._hand_over)
        self._numbers = itertools.count(1)
        self._output_tokens: dict[int, int] = {}
        self._coming_output_tokens = 0
        self._chance = random.Random(setup.seed)
        self.stats = RequestStats(window_s=_STATS_WINDOW_S, clock=self._clock)
        self.dispatcher = Dispatcher(
            transport=self,
            stats=self.stats,
            clock=self._clock,
            new_request_id=self._new_number,
            request_timeout_s=REQUEST_TIMEOUT_S,
        )
        self.heard: Callable[[Received], None] = self.dispatcher.receive
        self.serving = self._make_serving()
        self.dispatcher.serve(self.serving)
        for name in setup.placement.layers:
            self.dispatcher.see(PeerEvent(peer=name, loss=None, silent_s=0.0))
        self.stages: dict[str, Stage] = {}
        self._nodes: dict[str, _Node] = {}
        for name, held in setup.placement.layers.items():
            node = self._nodes[name] = _Node(name, self.agenda, self._wires)
            node.stage = self.stages[name] = self._make_stage(node, held)
            node.turn()
        self.agenda.at(_TICK_S, self._tick)

    def submit(self, *, prompt_tokens: int, output_tokens: int) -> LiveRequest:
        """A request with a prompt of its own. Raises NotServing, NeverFits and QueueFull."""
        self._coming_output_tokens = output_tokens
        return self.dispatcher.submit(
            self.serving,
            prompt_ids=self._chance.choices(range(_VOCABULARY), k=prompt_tokens),
            sampling=Sampling(
                temperature=1.0,
                top_p=1.0,
                top_k=0,
                seed=self._chance.getrandbits(64),
                max_tokens=_CLIENT_LIMIT,
            ),
            stop_strings=(),
        )

    def check_pages(self) -> None:
        """Raises KvCacheCorrupt unless every stage has all its pages, each once."""
        for stage in self.stages.values():
            Stage.check_pages(stage)

    def send(self, peer: str, message: Message) -> None:
        """What the dispatcher sends."""
        if message.kind == Kind.PROMPT:
            entries = tuple(self._with_length(entry) for entry in message.entries)
            message = replace(message, entries=entries)
        self._wires.send(COORDINATOR, peer, message)

    def _with_length(self, entry: Entry) -> Entry:
        """The route tells the stages how many tokens are left of the answer."""
        if entry.route is None:
            raise ValueError(f"the prompt of request {entry.request} has no route")
        sampling = entry.route.sampling
        produced = _CLIENT_LIMIT - sampling.max_tokens
        left = self._output_tokens[entry.request] - produced
        route = replace(entry.route, sampling=replace(sampling, max_tokens=left))
        return entry._replace(route=route)

    def _new_number(self) -> int:
        number = next(self._numbers)
        self._output_tokens[number] = self._coming_output_tokens
        return number

    def _clock(self) -> float:
        return self.agenda.now_s

    def _tick(self) -> None:
        self.dispatcher.expire()
        self.agenda.at(self.agenda.now_s + _TICK_S, self._tick)

    def _hand_over(self, source: str, target: str, message: Message) -> None:
        received = Received(sender=source, message=message)
        if target == COORDINATOR:
            self.heard(received)
        else:
            self._nodes[target].deliver(received)

    def _make_serving(self) -> Serving:
        setup = self._setup
        plan = ServingPlan(
            deployment_id=1,
            generation=_GENERATION,
            model_name=setup.problem.model.name,
            checkpoint="none: the nodes are emulated",
            num_layers=setup.problem.model.num_layers,
            partial_inference=setup.partial_inference,
            placement=setup.placement,
            routing_weights=setup.routing_weights,
            workload=setup.problem.workload,
            max_context_tokens=setup.max_context_tokens,
            page_tokens=setup.page_tokens,
            kv_high_water=setup.kv_high_water,
            peers=(),
        )
        rng = random.Random(setup.seed)
        return Serving(
            plan=plan,
            tokenizer=byte_tokenizer(),
            routing=Routing(name=setup.router, rng=rng, clock=self._clock),
        )

    def _make_stage(self, node: _Node, held: LayerRange) -> Stage:
        setup = self._setup
        return _Stage(
            node.name,
            Opened(
                backend=EmulatedRunner(
                    self._emulation_of(node.name),
                    first=held.first,
                    end=held.end,
                    page_tokens=setup.page_tokens,
                    clock=node.clock,
                    sleep=node.sleep,
                ),
                limits=EngineLimits(
                    page_tokens=setup.page_tokens,
                    max_batch_tokens=setup.max_batch_tokens,
                    max_context_tokens=setup.max_context_tokens,
                ),
            ),
            node,
            setup.options[node.name],
            generation=_GENERATION,
            process=StageProcess(clock=node.clock, sleep=node.sleep),
        )

    def _emulation_of(self, name: str) -> Emulation:
        problem, network = self._setup.problem, self._network_of(name)
        return Emulation(
            profile=problem.profile_of(name),
            model=network.model,
            vocab_size=_VOCABULARY,
            links=network.links,
            transmission=network.transmission,
            host_copy_s_per_byte=self._setup.host_copy_s_per_byte,
        )

    def _network_of(self, name: str) -> EmulatedNetwork:
        """The links that lead from a node, or from the coordinator."""
        cluster = self._setup.problem.cluster
        links = {
            peer: EmulatedLink(
                bandwidth_bytes_per_s=link.bandwidth_bytes_per_s, latency_s=link.latency_s
            )
            for peer in (COORDINATOR, *self._setup.placement.layers)
            if peer != name and (link := cluster.link_between(name, peer)) is not None
        }
        return EmulatedNetwork(
            model=self._setup.problem.model,
            links=links,
            transmission=self._setup.transmission,
        )


def byte_tokenizer() -> CheckpointTokenizer:
    """A token per byte; what the tokens are does not matter."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(
        models.BPE(vocab={char: index for index, char in enumerate(alphabet)}, merges=[])
    )
    tokenizer.decoder = decoders.ByteLevel()
    return CheckpointTokenizer(
        tokenizer=tokenizer,
        chat_template=None,
        special_tokens={},
        stop_token_ids=(),
        vocabulary_size=_VOCABULARY,
    )
