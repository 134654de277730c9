"""Which requests run and which wait: routes them, lets them in, and ends them."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from planner.routers.waiting import kept_for
from runtime.api.waiting_line import WaitingLine
from runtime.coordinator.live_request import LiveRequest
from runtime.coordinator.refusals import QueueFull
from runtime.coordinator.request_stats import RequestStats
from runtime.coordinator.serving import Serving
from runtime.coordinator.stage_link import StageLink
from runtime.coordinator.tracing import Tracer

logger = logging.getLogger(__name__)
requests_logger = logging.getLogger("helix.requests")


@dataclass(slots=True, kw_only=True, eq=False)
class Admission:
    """Owns which requests run and which wait; the dispatcher and its parts call it.

    Whatever ends a request goes through `end`, which gives back its KV estimate, tells every
    stage of its path to forget it, and lets the next one in.
    """

    link: StageLink
    stats: RequestStats
    clock: Callable[[], float]
    tracer: Tracer | None
    running: dict[int, LiveRequest] = field(init=False, default_factory=dict)
    waiting: WaitingLine[LiveRequest] = field(init=False, default_factory=WaitingLine)
    paused: bool = field(init=False, default=False)  # only what ran before is let in

    @property
    def nodes_in_use(self) -> set[str]:
        """Nodes that a request runs on now."""
        return {
            stage.node
            for request in self.running.values()
            if request.pipeline is not None
            for stage in request.pipeline.stages
        }

    def running_through(self, node: str) -> list[LiveRequest]:
        """Those with the stage of `node` on their way."""
        return [
            request
            for request in self.running.values()
            if request.pipeline and any(stage.node == node for stage in request.pipeline.stages)
        ]

    def running_under(self, plan: Serving) -> list[LiveRequest]:
        return [request for request in self.running.values() if request.serving is plan]

    def take(self, request: LiveRequest) -> None:
        """Route a new request or let it wait its turn. Raises QueueFull; then nothing was kept."""
        turn = self.waiting.turn_of(request)
        most = request.serving.plan.max_queued_requests
        if self._route(request, kept=_kept_for_all(self.waiting.before(turn))):
            self.waiting.pass_by(request, turn)
        elif self.waiting.has_place(request.owner, most=most):
            self.waiting.add(request, turn)
        else:
            self.stats.rejected()
            raise QueueFull(
                waiting=len(self.waiting),
                own=self.waiting.waiting_of(request.owner),
                retry_after_s=self.stats.retry_after_s(waiting=len(self.waiting)),
            )
        self.stats.arrived()

    def let_in(self) -> None:
        """In the order of the line in every component, so that no large request starves."""
        kept: frozenset[str] = frozenset()
        for request in tuple(self.waiting):
            if kept.issuperset(request.serving.nodes):
                return
            if self._route(request, kept=kept):
                self.waiting.let_in(request)
            else:
                kept |= _kept_for(request)

    def has_other_way(self, request: LiveRequest) -> bool:
        """Whether there is room for it now if it restarts, beside what it holds.

        Takes a turn of the router.
        """
        serving = request.next_serving
        masked = serving.avoided_nodes()
        return serving.is_up and serving.choose(request.restarted_size, masked=masked) is not None

    def leave_path(self, request: LiveRequest, *, traced: bool = False) -> None:
        """No longer running: give back the KV estimate and tell the stages."""
        del self.running[request.id]
        request.serving.kv.release(request.id)
        request.serving.load.release(request.id, total_tokens=request.next_position)
        self.link.release(request, traced=traced)

    def end(self, request: LiveRequest) -> None:
        """Forget `request` everywhere and let others in; may be called again."""
        if request.ended:
            return
        request.ended = True
        self.stats.came_to(request.outcome)
        _log_end(request, now=self.clock())
        traced = self.tracer is not None and self.tracer.ended(request)
        if request.id in self.running:
            self.leave_path(request, traced=traced)
        else:
            self.waiting.remove(request)
        self.let_in()

    def fail(self, request: LiveRequest, message: str, *, code: str) -> None:
        """End it and tell its client why."""
        about = {"request_id": request.origin.asked_as, "request": f"{request.id:016x}"}
        logger.warning("request %d failed: %s", request.id, message, extra=about)
        self.stats.failed()
        request.fail(message, code=code)
        self.end(request)

    def _route(self, request: LiveRequest, *, kept: frozenset[str]) -> bool:
        """Choose a pipeline and send the prompt; False when none is free now.

        `kept` are nodes that requests before this one wait for.
        """
        serving = request.serving
        if not serving.is_up:
            return False  # else those of the plan before would all take the first way to be up
        if self.paused and not request.epoch:
            return False
        now = self.clock()
        pipeline = serving.choose(request.size, masked=serving.avoided_nodes() | kept)
        if pipeline is None:
            return False
        serving.kv.admit(request.id, pipeline, size=request.size)
        if not request.token_times:
            serving.load.admit(request.id, pipeline, size=request.size)
        else:
            serving.load.readmit(request.id, pipeline, size=request.size)
        request.follow(pipeline, now=now)
        self.running[request.id] = request
        self.stats.routed(request)
        self.link.send_prompt(request)
        return True


def _log_end(request: LiveRequest, *, now: float) -> None:
    """What a program that reads logs wants to know of every request; people have pages for it."""
    if not requests_logger.isEnabledFor(logging.DEBUG):
        return
    about = {
        "request_id": request.origin.asked_as,
        "request": f"{request.id:016x}",
        "generation": request.serving.plan.generation,
        "outcome": request.outcome,
        "output_tokens": len(request.token_ids),
        "ttft_s": request.ttft_s,
        "e2e_s": now - request.arrived_at,
    }
    requests_logger.debug("request %d ended: %s", request.id, request.outcome, extra=about)


def _kept_for_all(requests: Iterable[LiveRequest]) -> frozenset[str]:
    kept: frozenset[str] = frozenset()
    for request in requests:
        if kept.issuperset(request.serving.nodes):
            break
        kept |= _kept_for(request)
    return kept


def _kept_for(request: LiveRequest) -> frozenset[str]:
    serving = request.serving
    return kept_for(request.size, router=serving.router, placement=serving.plan.placement)
