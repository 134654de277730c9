"""Lets requests in: routers, KV estimates and predictions as in the coordinator, at an engine."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace

from planner.domain.cluster import COORDINATOR
from planner.domain.pipeline import Pipeline
from planner.domain.placement import Placement
from planner.routers.base import RequestSize, Router
from planner.routers.kv_estimator import KvEstimator
from planner.routers.node_load import NodeLoad
from planner.routers.output_length import OutputLengthEstimate
from planner.routers.waiting import kept_for
from planner.simulator.compiled_engine import Engine
from planner.simulator.engine import NEVER, Occurrence, OccurrenceKind
from planner.simulator.forecast import Tally
from planner.simulator.record import OnRequest, RequestRecord
from planner.simulator.translation import Links
from planner.workload.request import InvalidWorkload, Lengths, Request

# A request that lost its pages so often fails, as in the runtime's coordinator.
MOST_ATTEMPTS = 50


class FixedLength(OutputLengthEstimate):
    """Always the same number of tokens, as in the published system."""

    def observe(self, output_tokens: int) -> None:
        """The published system learns nothing from answers."""


@dataclass(slots=True, kw_only=True)
class _Running:
    """A request that was let in as the `number`th, and what is reserved for it at present."""

    request: Request
    size: RequestSize
    number: int
    admitted_s: float
    pipeline: Pipeline
    attempts: int = 1
    has_first_token: bool = False


class Admission:
    """Admits requests through a router, tracks their KV reservations, and times them.

    Reservations grow by pages of `page_tokens`; None leaves them as they were at admission.
    `prompts` counts the requests without a first token yet, by component of the placement.
    Preempted requests wait in front of all others for the next that finishes. `on_request` hears of
    each that has.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        router: Router,
        kv: KvEstimator,
        load: NodeLoad,
        links: Links,
        placement: Placement,
        prediction: OutputLengthEstimate,
        page_tokens: int | None,
        on_request: OnRequest | None,
    ) -> None:
        self._engine, self._router, self._kv, self._links = engine, router, kv, links
        self._load = load
        self._prediction = prediction
        self._page_tokens = page_tokens
        self._on_request = on_request
        self._admitted = 0
        self._placement = placement
        self._running: dict[int, _Running] = {}
        self._preempted: list[int] = []
        self._prompt_components: dict[int, int] = {}
        self.prompts: Counter[int] = Counter()
        self.running = 0
        self.reset_tallies()

    def reset_tallies(self) -> None:
        self.ttft, self.tpot, self.e2e, self.queue = Tally(), Tally(), Tally(), Tally()
        self.failed = 0

    def size_of(self, lengths: Lengths) -> RequestSize:
        """The size that the coordinator predicts for a request that arrives now."""
        return RequestSize(
            prompt_tokens=lengths.prompt_tokens,
            predicted_output_tokens=self._prediction.predict(max_tokens=NEVER),
        )

    def try_to_admit(
        self, request: Request, size: RequestSize, *, kept: Collection[str] = ()
    ) -> bool:
        """Route the request around the `kept` nodes and start it; False if no route has room."""
        lengths = request.lengths
        pipeline = self._router.choose(size, masked={*kept, *self._kept_for_preempted()})
        if pipeline is None:
            if not self.running and not self._router.can_ever_serve(size):
                raise InvalidWorkload(
                    f"a request of {size.prompt_tokens} prompt and {size.predicted_output_tokens} "
                    "predicted output tokens has no room on any route even when all nodes are "
                    "idle; shorten it or give the nodes more KV room (fewer layers)"
                )
            return False
        number = self._engine.admit(
            prompt_tokens=lengths.prompt_tokens, output_tokens=lengths.output_tokens
        )
        self._running[number] = _Running(
            request=request,
            size=size,
            number=self._admitted,
            admitted_s=self._engine.now,
            pipeline=pipeline,
        )
        self._admitted += 1
        self._enter(number, pipeline)
        self.queue.add(self._engine.now - request.arrival_s)
        return True

    def hear(self, occurrence: Occurrence) -> bool:
        """Update KV reservations and tallies after an occurrence.

        Returns True if waiting requests may be admitted now: one has ended, or none is running.
        """
        number, now = occurrence.request, occurrence.time_s
        if occurrence.kind == OccurrenceKind.FIRST_TOKEN:
            running = self._running[number]
            running.has_first_token = True
            self._load.first_token(number)
            self.ttft.add(now - running.request.arrival_s)
            self.prompts[self._prompt_components.pop(number)] -= 1
        elif occurrence.kind == OccurrenceKind.OUTGROWN:
            self._kv.grow(number, total_tokens=occurrence.tokens)
            self._engine.set_grow_at(number, tokens=self._in_pages(occurrence.tokens))
        elif occurrence.kind == OccurrenceKind.PREEMPTED:
            self._leave(number, tokens=occurrence.tokens)
            return self._wait_again(number, tokens=occurrence.tokens)
        else:
            running = self._running.pop(number)
            request = running.request
            self._leave(number, tokens=occurrence.tokens)
            self._record(running, occurrence)
            self.e2e.add(now - request.arrival_s)
            output = request.lengths.output_tokens
            self._prediction.observe(output)
            if output > 1:
                self.tpot.add((now - occurrence.first_token_s) / (output - 1))
            self._begin_anew()
            return True
        return False

    def _record(self, running: _Running, finished: Occurrence) -> None:
        if self._on_request is None:
            return
        request, pipeline = running.request, running.pipeline
        waits_s = self._engine.stage_waits_s(finished.request, num_stages=len(pipeline.stages))
        self._on_request(
            RequestRecord(
                number=running.number,
                arrival_s=request.arrival_s,
                admitted_s=running.admitted_s,
                first_token_s=finished.first_token_s,
                finished_s=finished.time_s,
                prompt_tokens=request.lengths.prompt_tokens,
                output_tokens=request.lengths.output_tokens,
                attempts=running.attempts,
                pipeline=pipeline,
                waits_s=tuple(waits_s),
            )
        )

    def _wait_again(self, number: int, *, tokens: int) -> bool:
        """Queue it before all others, with the tokens so far as its prompt; see `hear`.

        Where that and the predicted tokens never fit together, it asks for one more only, as it may
        be about to end (`runtime/coordinator/admission.py`).
        """
        running = self._running[number]
        running.attempts += 1
        running.size = replace(running.size, prompt_tokens=tokens)
        can_ever_serve = self._router.can_ever_serve
        if not can_ever_serve(running.size):
            running.size = replace(running.size, predicted_output_tokens=1)
        if running.attempts > MOST_ATTEMPTS or not can_ever_serve(running.size):
            del self._running[number]
            self._engine.give_up(number)
            self.failed += 1
        else:
            self._preempted.insert(0, number)
            if self.running:  # until one of those finishes
                return False
        self._begin_anew()
        return True

    def _begin_anew(self) -> None:
        """Let preempted requests in again, first come, first served in every component."""
        kept: frozenset[str] = frozenset()
        for number in tuple(self._preempted):
            size = self._running[number].size
            pipeline = self._router.choose(size, masked=kept)
            if pipeline is None:
                kept |= kept_for(size, router=self._router, placement=self._placement)
                continue
            self._preempted.remove(number)
            self._enter(number, pipeline)

    def _kept_for_preempted(self) -> frozenset[str]:
        kept: frozenset[str] = frozenset()
        for number in self._preempted:
            size = self._running[number].size
            kept |= kept_for(size, router=self._router, placement=self._placement)
        return kept

    def _enter(self, number: int, pipeline: Pipeline) -> None:
        running = self._running[number]
        running.pipeline = pipeline
        first, last = pipeline.stages[0].node, pipeline.stages[-1].node
        self._engine.begin(
            number,
            grow_at=self._in_pages(running.size.total_tokens),
            stages=self._links.visits(pipeline),
            link_home=self._links.between(last, COORDINATOR),
            link_back=self._links.back(last, first),
        )
        self._kv.admit(number, pipeline, size=running.size)
        self.running += 1
        is_new = not running.has_first_token
        self._load.admit(number, pipeline, size=running.size, is_new=is_new)
        if is_new:
            component = self._placement.component_of(pipeline.stages[0].node)
            self._prompt_components[number] = component
            self.prompts[component] += 1

    def _leave(self, number: int, *, tokens: int) -> None:
        self._kv.release(number)
        self._load.release(number, total_tokens=tokens)
        self.running -= 1
        if number in self._prompt_components:
            self.prompts[self._prompt_components.pop(number)] -= 1

    def _in_pages(self, tokens: int) -> int:
        """The tokens that the pages reserved for so many have room for."""
        if self._page_tokens is None:
            return NEVER
        return -(-tokens // self._page_tokens) * self._page_tokens
