"""Which plan serves, which is to follow it, and which still ends its requests.

A plan that follows another of the same checkpoint is loaded beside it. Requests go on under the old
one until all stages of the new one are up; then new requests are the new one's, and those of the
old end where they are, or go on under the new one, from prompt and tokens, `migrate_after_s` later.
When nothing runs under it any more, its stages are told to forget it until none speaks of it. See
docs/decisions/0006-requests-outlive-stages.md.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from runtime.coordinator.admission import Admission, Recovery
from runtime.coordinator.refusals import NotServing
from runtime.coordinator.serving import Serving
from runtime.coordinator.stage_link import StageLink
from runtime.protocol.control import PeerAddress

NO_PLAN = "no plan is deployed; deploy one in the web interface"
STOPPING = "the coordinator is stopping; ask again, or ask another one"
RETIRED_AFTER_S = 5.0  # without a STATUS of a plan: no stage of it was missed
logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True, eq=False)
class Plans:
    """Owns the plans of a coordinator and how one follows another; the dispatcher calls it.

    `serving` is None while there is no plan; `coming` and `leaving` only beside one that serves.

    Waiting requests are all of `serving`, running ones of `serving` or of `leaving`.
    """

    admission: Admission
    recovery: Recovery
    link: StageLink
    clock: Callable[[], float]
    migrate_after_s: float
    serving: Serving | None = field(init=False, default=None)
    coming: Serving | None = field(init=False, default=None)
    leaving: Serving | None = field(init=False, default=None)
    is_closed: bool = field(init=False, default=False)  # no new requests are taken
    _leave_by: float = field(init=False, default=0.0)
    # whose stages were asked to forget them, and when one last spoke of it
    _retired: dict[Serving, float] = field(init=False, default_factory=dict)
    _why_none: str = field(init=False, default=NO_PLAN)
    # new requests wait for the stages of a plan that is not up yet
    _holds: bool = field(init=False, default=False)

    @property
    def present(self) -> tuple[Serving, ...]:
        """Those under which requests run, or may soon."""
        plans = (self.leaving, self.serving, self.coming)
        return tuple(plan for plan in plans if plan is not None)

    @property
    def peers(self) -> tuple[PeerAddress, ...]:
        """Every stage there is something to say to; where it moved, as the newest plan says."""
        plans = (*self._retired, *self.present)
        return tuple({peer.name: peer for plan in plans for peer in plan.plan.peers}.values())

    @property
    def leaving_generation(self) -> int | None:
        """Of the plan before, until none of its stages speaks of it; None: it has gone."""
        before = self.leaving or next(iter(self._retired), None)
        return None if before is None else before.generation

    def of(self, generation: int) -> Serving | None:
        """The plan of that generation, if requests run under it or may soon."""
        return next((plan for plan in self.present if plan.generation == generation), None)

    def with_node(self, node: str) -> tuple[Serving, ...]:
        return tuple(plan for plan in self.present if node in plan.nodes)

    def close(self) -> None:
        """Take no new requests, for good; those that are here go on."""
        self.is_closed = True

    def ready(self) -> Serving:
        """The plan, once every stage has reported. Raises NotServing naming who is missing."""
        if self.is_closed:
            raise NotServing(STOPPING)
        if self.serving is None:
            raise NotServing(self._why_none)
        missing = self.serving.missing_nodes()
        if missing:
            raise NotServing(f"waiting for the stages of: {', '.join(missing)}")
        return self.serving

    def open(self) -> Serving:
        """The plan that takes requests; they may have to wait for its stages. Raises NotServing."""
        if self.serving is not None and self._holds and not self.is_closed:
            return self.serving
        return self.ready()

    def serve(self, new: Serving | None, *, why_none: str, was_served: bool) -> None:
        """Serve another plan as soon as it is up, or none, and then say why to clients.

        Where stages cannot hold both, or clients could not ask before, the plan before is followed
        at once, and its requests wait. New ones wait too, if clients could ask before: under such a
        plan or, `was_served`, of the process that ran before this one. Under a plan of another
        checkpoint nothing goes on: requests end with an error.
        """
        before = self.serving
        if new is None or before is None or not new.continues(before):
            self._holds = was_served
            self._fail_all()
            self._retired.clear()
        elif self._takes(before) and new.stands_beside(before):
            self._await(new)  # of two that are not up yet, the first that is serves what waits
            return
        else:
            self._holds = was_served or self._takes(before)
            new.router.take_over(before.router)
            for plan in self.present:
                plan.followed_by = new
                self._retired[plan] = self.clock()
            self.recovery.hand_on(new)
            self.recovery.move(self.admission.running.values())
        self.serving, self.coming, self.leaving = new, None, None
        self._why_none = why_none
        self.link.forget_complaints()

    def hear_unknown(self, sender: str, generation: int) -> None:
        """A stage serves a generation that is not present here.

        It is told to forget one that is older than what serves, once that is up, or was to come and
        was overtaken. This process may not have heard yet of one that is newer.
        """
        for plan in self._retired:
            if plan.generation == generation:
                self._retired[plan] = self.clock()
        if self.serving is None:
            return
        if generation < self.serving.generation:
            is_wanted = not self.serving.is_up
        else:
            is_wanted = self.coming is None or generation > self.coming.generation
        if not is_wanted:
            self.link.retire([sender], generation=generation)

    def look(self) -> None:
        """Take the steps that are due; call it after news of stages and about once a second."""
        now = self.clock()
        if self.serving is not None and self.coming is not None and self._may_take_over():
            self._take_over(self.serving, self.coming)
        if self.leaving is not None:
            running = self.admission.running_under(self.leaving)
            if running and now >= self._leave_by:
                self.recovery.move(running)
                running = []
            if not running:
                self._retire(self.leaving)
                self.leaving = None
        self._retired = {
            plan: heard_at
            for plan, heard_at in self._retired.items()
            if now - heard_at <= RETIRED_AFTER_S
        }

    def _await(self, new: Serving) -> None:
        """Let it come, and nothing else: what was to come is dropped, what leaves goes at once."""
        if self.leaving is not None:
            self.recovery.move(self.admission.running_under(self.leaving))
            self._retire(self.leaving)
            self.leaving = None
        if self.coming is not None:
            self._retire(self.coming)
        self.coming = new
        logger.info("generation %d takes over once all its stages are up", new.generation)

    def _may_take_over(self) -> bool:
        """Every stage of `coming` is there; or some fell silent again, but so did some of ours."""
        coming, serving = self.coming, self.serving
        if coming is None or serving is None or not coming.is_up:
            return False
        return not coming.silent_nodes() or bool(serving.silent_nodes())

    def _take_over(self, old: Serving, new: Serving) -> None:
        logger.info("generation %d takes over from %d", new.generation, old.generation)
        new.router.take_over(old.router)
        old.followed_by = new
        self.serving, self.coming, self.leaving = new, None, old
        self._leave_by = self.clock() + self.migrate_after_s
        self.link.forget_complaints()
        self.recovery.hand_on(new)

    def _retire(self, plan: Serving) -> None:
        logger.info("generation %d is retired", plan.generation)
        self._retired[plan] = self.clock()
        self.link.retire(plan.nodes, generation=plan.generation)

    def _takes(self, plan: Serving) -> bool:
        return self._holds or plan.is_up

    def _fail_all(self) -> None:
        for request in [*self.admission.waiting, *self.admission.running.values()]:
            self.admission.fail(
                request,
                "the plan was replaced while the request ran; try again",
                code="plan_replaced",
            )
