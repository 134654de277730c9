"""Who is let in and when: routers and KV estimates as in the coordinator, around an engine."""

import math
from collections import deque
from collections.abc import Mapping
from typing import Protocol

from planner.domain.pipeline import Pipeline
from planner.domain.placement import Placement
from planner.domain.problem import Problem
from planner.routers.base import RequestSize, Router
from planner.routers.kv_estimator import KvEstimator
from planner.routers.measured_rates import MeasuredRates
from planner.simulator.engine import NEVER, Engine, Occurrence, OccurrenceKind
from planner.simulator.forecast import Tally
from planner.simulator.setup import Links, Numbering
from planner.workload.demand import Arrivals, Backlog, Demand, PublishedFeeder
from planner.workload.request import InvalidWorkload, Request


class OutputPrediction(Protocol):
    """How many output tokens to reserve KV room for."""

    def predict(self, *, max_tokens: int) -> int: ...

    def observe(self, output_tokens: int) -> None: ...


class FixedPrediction:
    """Always the same number of tokens, as in the published system."""

    def __init__(self, output_tokens: int) -> None:
        self._output_tokens = output_tokens

    def predict(self, *, max_tokens: int) -> int:
        return min(self._output_tokens, max_tokens)

    def observe(self, output_tokens: int) -> None:
        """The published system learns nothing from answers."""


class Admission:
    """Lets requests in through a router, keeps their KV reservations, and times them.

    Reservations grow by pages of `page_tokens`; None leaves them as they were at admission.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        router: Router,
        kv: KvEstimator,
        links: Links,
        prediction: OutputPrediction,
        page_tokens: int | None,
        recorded_pipelines: int,
    ) -> None:
        self._engine, self._router, self._kv, self._links = engine, router, kv, links
        self._prediction = prediction
        self._page_tokens = page_tokens
        self._recorded = recorded_pipelines
        self._arrival_of: dict[int, Request] = {}
        self.pipelines: list[Pipeline] = []
        self.running = 0
        self.dropped = 0
        self.reset_tallies()

    def reset_tallies(self) -> None:
        self.ttft, self.tpot, self.e2e, self.queue = Tally(), Tally(), Tally(), Tally()

    def try_to_admit(self, request: Request) -> bool:
        """Route and start the request now, unless no route has room."""
        lengths = request.lengths
        predicted = self._prediction.predict(max_tokens=NEVER)
        size = RequestSize(prompt_tokens=lengths.prompt_tokens, predicted_output_tokens=predicted)
        pipeline = self._router.choose(size)
        if pipeline is None:
            if not self.running and not self._router.can_ever_serve(size):
                raise InvalidWorkload(
                    f"a request of {lengths.prompt_tokens} prompt and {predicted} predicted output "
                    "tokens has no room on any route even when all nodes are idle; shorten it or "
                    "give the nodes more KV room (fewer layers)"
                )
            return False
        stages, link_home = self._links.visits(pipeline)
        number = self._engine.admit(
            prompt_tokens=lengths.prompt_tokens,
            output_tokens=lengths.output_tokens,
            grow_at=self._in_pages(size.total_tokens),
            stages=stages,
            link_home=link_home,
        )
        self._kv.admit(number, pipeline, size=size)
        self._arrival_of[number] = request
        self.queue.add(self._engine.now - request.arrival_s)
        self.running += 1
        if len(self.pipelines) < self._recorded:
            self.pipelines.append(pipeline)
        return True

    def hear(self, occurrence: Occurrence) -> None:
        """Keep the KV reservations and tallies in step with what happened."""
        number, now = occurrence.request, occurrence.time_s
        if occurrence.kind == OccurrenceKind.FIRST_TOKEN:
            self.ttft.add(now - self._arrival_of[number].arrival_s)
        elif occurrence.kind == OccurrenceKind.OUTGROWN:
            self._kv.grow(number, total_tokens=occurrence.tokens)
            self._engine.set_grow_at(number, tokens=self._in_pages(occurrence.tokens))
        else:
            request = self._arrival_of.pop(number)
            self._kv.release(number)
            self.running -= 1
            self.e2e.add(now - request.arrival_s)
            output = request.lengths.output_tokens
            self._prediction.observe(output)
            if output > 1:
                self.tpot.add((now - occurrence.first_token_s) / (output - 1))

    def _in_pages(self, tokens: int) -> int:
        """The tokens that the pages reserved for so many have room for."""
        if self._page_tokens is None:
            return NEVER
        return -(-tokens // self._page_tokens) * self._page_tokens


class Feeder(Protocol):
    """Decides when requests are offered to the admission."""

    def due_s(self) -> float:
        """When `offer` has to be called next, whatever happens; infinite for never."""

    def offer(self) -> None:
        """The time of `due_s` has come."""

    def hear(self, occurrence: Occurrence) -> None:
        """The admission has heard of this; there may be room now."""


class ArrivalFeeder:
    """Requests wait first come, first served, as in the coordinator."""

    def __init__(self, arrivals: Arrivals, admission: Admission) -> None:
        self._requests = arrivals.requests
        self._admission = admission
        self._waiting: deque[Request] = deque()
        self._last_s = 0.0
        self._next = self._following()

    def due_s(self) -> float:
        return math.inf if self._next is None else self._next.arrival_s

    def offer(self) -> None:
        if self._next is not None:
            self._waiting.append(self._next)
            self._next = self._following()
            if len(self._waiting) == 1:
                self._let_in()

    def hear(self, occurrence: Occurrence) -> None:
        if occurrence.kind == OccurrenceKind.FINISHED:
            self._let_in()

    def _let_in(self) -> None:
        while self._waiting and self._admission.try_to_admit(self._waiting[0]):
            self._waiting.popleft()

    def _following(self) -> Request | None:
        request = next(self._requests, None)
        if request is not None:
            if request.arrival_s < self._last_s:
                raise InvalidWorkload(
                    f"a request arrives at {request.arrival_s:g} s after one at {self._last_s:g} s;"
                    " sort the requests by arrival"
                )
            self._last_s = request.arrival_s
        return request


class BacklogFeeder:
    """One more request whenever there is room and few prompts are under way."""

    def __init__(self, backlog: Backlog, admission: Admission, engine: Engine) -> None:
        self._lengths, self._limit = backlog.lengths, backlog.prompts_in_flight
        self._admission, self._engine = admission, engine
        self._prompts = 0
        self._full = False  # until something finishes there is no room, so why ask
        self._next = next(self._lengths, None)
        self._let_in()

    def due_s(self) -> float:
        return math.inf

    def offer(self) -> None:
        """A backlog waits for nothing but room."""

    def hear(self, occurrence: Occurrence) -> None:
        if occurrence.kind == OccurrenceKind.FIRST_TOKEN:
            self._prompts -= 1
        elif occurrence.kind == OccurrenceKind.FINISHED:
            self._full = False
        self._let_in()

    def _let_in(self) -> None:
        while self._prompts < self._limit and self._next is not None and not self._full:
            request = Request(arrival_s=self._engine.now, lengths=self._next)
            if not self._admission.try_to_admit(request):
                self._full = True
                return
            self._prompts += 1
            self._next = next(self._lengths, None)


class LayerUse(Protocol):
    """The share of KV room that is reserved for the fullest layer, its nodes taken together."""

    def __call__(self) -> float: ...


class OfflineFeeder:
    """The published simulator's feeder for offline runs; see PublishedFeeder."""

    def __init__(
        self, feeder: PublishedFeeder, admission: Admission, engine: Engine, layer_use: LayerUse
    ) -> None:
        self._feeder, self._admission, self._engine = feeder, admission, engine
        self._layer_use = layer_use
        self._due = deque(feeder.spacing_s * number for number in range(feeder.first_requests))

    def due_s(self) -> float:
        return self._due[0] if self._due else math.inf

    def offer(self) -> None:
        lengths = next(self._feeder.lengths, None)
        arrival = self._due.popleft()
        if lengths is not None and not self._admission.try_to_admit(
            Request(arrival_s=arrival, lengths=lengths)
        ):
            self._admission.dropped += 1

    def hear(self, occurrence: Occurrence) -> None:
        if (
            occurrence.kind != OccurrenceKind.OUTGROWN
            and self._layer_use() <= self._feeder.feed_high_water
        ):
            self._due.append(self._engine.now + self._feeder.spacing_s)


def feeder_for(
    demand: Demand, *, admission: Admission, engine: Engine, layer_use: LayerUse
) -> Feeder:
    if isinstance(demand, Arrivals):
        return ArrivalFeeder(demand, admission)
    if isinstance(demand, Backlog):
        return BacklogFeeder(demand, admission, engine)
    return OfflineFeeder(demand, admission, engine, layer_use)


def layer_use_of(
    problem: Problem, placement: Placement, kv: KvEstimator, capacities: Mapping[str, float]
) -> LayerUse:
    """How the published feeder measures fullness: by layer, over its nodes' room per layer."""
    room = [0.0] * problem.model.num_layers
    for name, held in placement.layers.items():
        for layer in range(held.first, held.end):
            room[layer] += capacities[name] / len(held)

    def fullest() -> float:
        used = [0.0] * len(room)
        for name, held in placement.layers.items():
            share = kv.used_token_layers(name) / len(held)
            for layer in range(held.first, held.end):
                used[layer] += share
        return max(part / whole for part, whole in zip(used, room, strict=True) if whole > 0)

    return fullest


class LoadOfNodes:
    """What routers may ask of the load while a simulation runs (`planner.routers.base.LoadView`)."""

    def __init__(self, engine: Engine, numbering: Numbering) -> None:
        self._engine, self._number_of = engine, numbering.number_of
        self._rates = MeasuredRates(
            total_of=lambda node: engine.tokens(numbering.number_of[node]),
            clock=lambda: engine.now,
        )

    def queued(self, node: str) -> int:
        """Prompts, chunks and decodes that wait for a step of the node."""
        return self._engine.waiting(self._number_of[node])

    def in_flight(self, node: str) -> int:
        """Requests that are running through the node."""
        return self._engine.resident(self._number_of[node])

    def tokens_per_s(self, node: str) -> float | None:
        """Prompt and output tokens that passed the node lately; None before anything did."""
        return self._rates.tokens_per_s(node)
