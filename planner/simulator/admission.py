"""Lets requests in: routers, KV estimates and predictions as in the coordinator, at an engine."""

from collections import Counter
from collections.abc import Collection
from typing import Protocol

from planner.domain.cluster import COORDINATOR
from planner.domain.pipeline import Pipeline
from planner.domain.placement import Placement
from planner.routers.base import RequestSize, Router
from planner.routers.kv_estimator import KvEstimator
from planner.routers.measured_rates import MeasuredRates
from planner.simulator.engine import NEVER, Engine, Occurrence, OccurrenceKind
from planner.simulator.forecast import Tally
from planner.simulator.translation import Links, Numbering
from planner.workload.request import InvalidWorkload, Lengths, Request


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
    `prompts` counts the requests without a first token yet, by component of the placement.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        router: Router,
        kv: KvEstimator,
        links: Links,
        placement: Placement,
        prediction: OutputPrediction,
        page_tokens: int | None,
        recorded_pipelines: int,
    ) -> None:
        self._engine, self._router, self._kv, self._links = engine, router, kv, links
        self._prediction = prediction
        self._page_tokens = page_tokens
        self._recorded = recorded_pipelines
        self._placement = placement
        self._requests: dict[int, Request] = {}
        self._prompt_components: dict[int, int] = {}
        self.prompts: Counter[int] = Counter()
        self.pipelines: list[Pipeline] = []
        self.running = 0
        self.dropped = 0
        self.reset_tallies()

    def reset_tallies(self) -> None:
        self.ttft, self.tpot, self.e2e, self.queue = Tally(), Tally(), Tally(), Tally()

    def size_of(self, lengths: Lengths) -> RequestSize:
        """What the coordinator expects of a request that arrives now."""
        return RequestSize(
            prompt_tokens=lengths.prompt_tokens,
            predicted_output_tokens=self._prediction.predict(max_tokens=NEVER),
        )

    def try_to_admit(
        self, request: Request, size: RequestSize, *, kept: Collection[str] = ()
    ) -> bool:
        """Route the request around the `kept` nodes and start it, unless no route has room."""
        lengths = request.lengths
        pipeline = self._router.choose(size, masked=kept)
        if pipeline is None:
            if not self.running and not self._router.can_ever_serve(size):
                raise InvalidWorkload(
                    f"a request of {size.prompt_tokens} prompt and {size.predicted_output_tokens} "
                    "predicted output tokens has no room on any route even when all nodes are "
                    "idle; shorten it or give the nodes more KV room (fewer layers)"
                )
            return False
        first, last = pipeline.stages[0].node, pipeline.stages[-1].node
        number = self._engine.admit(
            prompt_tokens=lengths.prompt_tokens,
            output_tokens=lengths.output_tokens,
            grow_at=self._in_pages(size.total_tokens),
            stages=self._links.visits(pipeline),
            link_home=self._links.between(last, COORDINATOR),
            link_back=self._links.back(last, first),
        )
        self._kv.admit(number, pipeline, size=size)
        self._requests[number] = request
        self._prompt_components[number] = self._placement.component_of(first)
        self.prompts[self._prompt_components[number]] += 1
        self.queue.add(self._engine.now - request.arrival_s)
        self.running += 1
        if len(self.pipelines) < self._recorded:
            self.pipelines.append(pipeline)
        return True

    def hear(self, occurrence: Occurrence) -> None:
        """Keep the KV reservations and tallies in step with what happened."""
        number, now = occurrence.request, occurrence.time_s
        if occurrence.kind == OccurrenceKind.FIRST_TOKEN:
            self.ttft.add(now - self._requests[number].arrival_s)
            self.prompts[self._prompt_components.pop(number)] -= 1
        elif occurrence.kind == OccurrenceKind.OUTGROWN:
            self._kv.grow(number, total_tokens=occurrence.tokens)
            self._engine.set_grow_at(number, tokens=self._in_pages(occurrence.tokens))
        else:
            request = self._requests.pop(number)
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


class LoadOfNodes:
    """What routers may ask of the load in a simulation; see `planner.routers.base.LoadView`."""

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
