"""Which requests run and which wait: routes them, lets them in, restarts and ends them.

A request whose pipeline is gone restarts in a new epoch, from its prompt and its tokens so far. See
docs/decisions/0006-requests-outlive-stages.md.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from planner.routers.base import Hop
from planner.routers.waiting import kept_for
from runtime.api.waiting_line import WaitingLine
from runtime.coordinator.live_request import LiveRequest
from runtime.coordinator.refusals import NACKS, QueueFull
from runtime.coordinator.request_stats import RequestStats
from runtime.coordinator.serving import Serving, links_of
from runtime.coordinator.stage_link import StageLink
from runtime.coordinator.tracing import Tracer
from runtime.protocol.data import Entry, Reason

logger = logging.getLogger(__name__)
requests_logger = logging.getLogger("helix.requests")
_MOST_EPOCHS = 50  # a request that is refused this often is not refused for a passing reason
# Refusals of a stage that was restarted or is about to be: time helps, asking at once does not.
_PASSING = frozenset({Reason.UNKNOWN_REQUEST, Reason.WRONG_GENERATION})


@dataclass(slots=True, kw_only=True, eq=False)
class Admission:
    """Owns which requests run and which wait; the dispatcher and its parts call it.

    Whatever ends a request goes through `end`, which gives back its KV estimate, tells every
    stage of its path to forget it, and lets the next one in.
    """

    link: StageLink
    stats: RequestStats
    clock: Callable[[], float]
    tracer: Tracer
    running: dict[int, LiveRequest] = field(init=False, default_factory=dict)
    waiting: WaitingLine[LiveRequest] = field(init=False, default_factory=WaitingLine)
    paused: bool = field(init=False, default=False)  # only what ran before is let in

    @property
    def nodes_in_use(self) -> set[str]:
        """Nodes that a request runs on now."""
        return {node for request in self.running.values() for node in request.nodes}

    def running_through(self, node: str) -> list[LiveRequest]:
        """Those with the stage of `node` on their way."""
        return [request for request in self.running.values() if node in request.nodes]

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
        traced = self.tracer.ended(request)
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
        is_new = not request.token_times
        serving.load.admit(request.id, pipeline, size=request.size, is_new=is_new)
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


@dataclass(slots=True, kw_only=True, eq=False)
class Recovery:
    """Moves requests whose stage, link or plan is gone; the dispatcher and its parts call it.

    Restarts requests, in front of those that wait.
    """

    admission: Admission
    link: StageLink
    clock: Callable[[], float]
    _try_at_tick: bool = field(init=False, default=False)

    def lose_node(self, node: str, why: str, *, plan: Serving | None = None) -> None:
        """The stage of `node` is gone, or has forgotten what ran through it: restart that.

        `plan`: only what ran under it.
        """
        lost = [
            request
            for request in self.admission.running_through(node)
            if plan is None or request.serving is plan
        ]
        if lost:
            logger.warning("the stage of %r %s; %d requests restart", node, why, len(lost))
        self._restart(lost)

    def lose_links(self, cut: frozenset[Hop]) -> None:
        """Requests that need a link that is cut restart around it, or wait for it."""
        lost = [
            request
            for request in self.admission.running.values()
            if request.pipeline and cut & links_of(request.pipeline)
        ]
        words = ", ".join(f"{source} -> {target}" for source, target in sorted(cut))
        logger.warning("lost the link %s; %d requests restart", words, len(lost))
        self._restart(lost)

    def come_up(self, node: str, serving: Serving) -> None:
        """The stage of `node` was silent, or never heard, and is there."""
        logger.info("stage of %r is up in generation %d", node, serving.generation)
        self.link.release_again(node)
        self._end_what_never_fits()
        self.admission.let_in()

    def move(self, requests: Iterable[LiveRequest]) -> None:
        """Requests that run go on under the plan that follows theirs, in the order they came."""
        moved = sorted(requests, key=lambda request: request.arrived_at)
        if moved:
            logger.info("%d requests go on under another plan", len(moved))
        self._restart(moved)

    def move_where_room(self, requests: Iterable[LiveRequest]) -> None:
        """Requests that run go on by another way if it has room for them now; the others stay."""
        for request in sorted(requests, key=lambda request: request.arrived_at):
            if self.admission.has_other_way(request):
                self._restart([request])

    def hand_on(self, serving: Serving) -> None:
        """All that wait do so for another plan."""
        for request in self.admission.waiting:
            request.serving = serving
        self._end_what_never_fits()
        self.admission.let_in()

    def refuse(self, sender: str, entry: Entry) -> None:
        """The stage of `sender` does not run what `entry` names."""
        running = self.admission.running
        request = running.get(entry.request)
        if request is None or entry.epoch != request.epoch or request.pipeline is None:
            return
        if sender not in request.nodes:
            self.link.complain(f"{sender!r} refused a request that is not on its way through it")
            return
        if entry.reason == Reason.NO_KV_PAGES and request.serving.shares(sender):
            self._turn_away(request, sender)
            return
        if self._may_restart(request, entry.reason):
            self._route_again(request)
            if entry.reason in _PASSING:
                self._try_at_tick = True
            elif not running or entry.reason == Reason.PREFIX_GONE:
                self.admission.let_in()
            return
        code, words = NACKS.get(entry.reason, ("refused", "refused the request; try again"))
        self.admission.fail(request, f"node {sender!r} {words}", code=code)

    def miss_tokens(self, request: LiveRequest) -> bool:
        """Tokens of it were lost on the way here, with a connection that broke: it restarts.

        Whether it does: of what happens again and again time is no remedy.
        """
        if self._has_begun_too_often(request):
            return False
        logger.warning("tokens of request %d were lost on the way; it restarts", request.id)
        self._restart([request])
        return True

    def tick(self) -> None:
        """Try again what was refused for a passing reason."""
        if self._try_at_tick:
            self._try_at_tick = False
            self.admission.let_in()

    def _restart(self, lost: Sequence[LiveRequest]) -> None:
        """In front of what waits, in their order."""
        for request in reversed(lost):
            self._route_again(request)
        self.admission.let_in()

    def _turn_away(self, request: LiveRequest, node: str) -> None:
        """Requests of another coordinator have taken the pages: try elsewhere, or when there is
        word of the room at `node` again."""
        request.serving.avoid_crowded(node)
        request.turn_away()
        self._restart([request])

    def _may_restart(self, request: LiveRequest, reason: Reason) -> bool:
        """Whether it lost only its place: prompt and tokens are known, so it can go on from them.

        For want of pages alone it is tried once, beside the times it was turned away for requests
        of others, or while others run that will give theirs back.
        """
        if self._has_begun_too_often(request):
            return False
        if reason == Reason.NO_KV_PAGES:
            is_first = request.epoch == request.turned_away
            return is_first or len(self.admission.running) > 1
        return reason in (Reason.PREEMPTED, Reason.PREFIX_GONE) or reason in _PASSING

    def _has_begun_too_often(self, request: LiveRequest) -> bool:
        return request.epoch - request.turned_away >= _MOST_EPOCHS

    def _route_again(self, request: LiveRequest) -> None:
        """Let it wait in front of all others, for a new epoch.

        No waiting helps a request that has outgrown every pipeline: it ends here.
        """
        self.admission.leave_path(request)
        request.restart(now=self.clock())
        self.admission.waiting.add_front(request)
        self._end_if_too_large(request)

    def _end_what_never_fits(self) -> None:
        for request in list(self.admission.waiting):
            self._end_if_too_large(request)

    def _end_if_too_large(self, request: LiveRequest) -> None:
        """Which is known only of a plan whose stages have reported their room."""
        serving = request.serving
        if not serving.is_up:
            return
        if request.next_position >= serving.plan.max_context_tokens:
            self.admission.fail(
                request,
                f"its {request.next_position} tokens so far leave no room in the "
                f"{serving.plan.max_context_tokens} of the plan that was deployed meanwhile",
                code="context_length_exceeded",
            )
            return
        can_ever_serve = serving.router.can_ever_serve
        if not can_ever_serve(request.size):
            request.predict_least()  # it may be about to end
        if not can_ever_serve(request.size):
            self.admission.fail(
                request,
                f"its {request.next_position} tokens so far need more KV cache than any pipeline "
                "of this cluster has; shorten the prompt or lower max_tokens",
                code="kv_capacity_exceeded",
            )
