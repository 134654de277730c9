"""What a MILP search knows while its solvers run: the best placement, its flow, the bound.

Nothing that a solver says about flow is believed: each placement it finds is measured by max flow
on all links, and only what that improves counts.
"""

from collections.abc import Callable, Sequence

from planner.domain.placement import Placement
from planner.domain.plan import Incumbent
from planner.domain.problem import Problem
from planner.max_flow import max_flow
from planner.placers.base import CancelToken, Progress, SearchOptions, SearchResult, StopReason
from planner.placers.milp_variables import PlacementModel

_BOUND_STEP_RELATIVE = 1e-4
_FLOW_STEP_RELATIVE = 1e-9


class MilpSearch:
    """The state of one search, shared by its stages. Times are the clock's, in seconds."""

    def __init__(
        self,
        *,
        problem: Problem,
        options: SearchOptions,
        known_bound_tokens_per_s: float,
        relative_gap: float,
        placer_name: str,
        progress: Progress,
        cancel: CancelToken,
        clock: Callable[[], float],
    ) -> None:
        self.best: Placement | None = None
        self._best_flow = 0.0
        self._problem = problem
        self._options = options
        self._known_bound = known_bound_tokens_per_s
        self._bound = known_bound_tokens_per_s
        self._sufficient_share = 1.0 - relative_gap
        self._placer_name = placer_name
        self._progress = progress
        self._cancel = cancel
        self._clock = clock
        self._started_s = clock()
        self._last_measured: Placement | None = None
        self._stop_reason: StopReason | None = None

    @property
    def left_s(self) -> float:
        """Seconds of the time limit that remain; negative when it is over."""
        return self._options.time_limit_s - (self._clock() - self._started_s)

    def begin_at(self, placement: Placement) -> None:
        """Take the warm start as best so far; whoever found it has reported it."""
        flow = self._flow_of(placement)
        if flow > 0:
            self.best, self._best_flow = placement, flow

    def consider(self, placement: Placement) -> None:
        """Measure a placement; keep and report it if it is the best."""
        if placement == self._last_measured:
            return
        self._last_measured = placement
        flow = self._flow_of(placement)
        if flow > self._best_flow * (1 + _FLOW_STEP_RELATIVE):
            self.best, self._best_flow = placement, flow
            self._report()

    def tighten(self, bound_tokens_per_s: float) -> None:
        """Keep and report a proven bound that is noticeably better."""
        if bound_tokens_per_s < self._bound * (1 - _BOUND_STEP_RELATIVE):
            self._bound = bound_tokens_per_s
            self._report()

    def should_stop(self) -> bool:
        """Whether cancelled, close enough to a bound, or out of time; once True, always."""
        if self._stop_reason is None:
            self._stop_reason = self._reason_to_stop()
        return self._stop_reason is not None

    def result(self, *, reason_if_not_stopped: StopReason, solver: str) -> SearchResult:
        return SearchResult(
            placement=self.best,
            upper_bound_tokens_per_s=self._bound_above_best(),
            stop_reason=self._stop_reason or reason_if_not_stopped,
            solver=solver,
        )

    def _flow_of(self, placement: Placement) -> float:
        return max_flow(
            self._problem,
            placement,
            partial_inference=self._options.partial_inference,
            max_hops=self._options.rules.max_hops,
        ).value_tokens_per_s

    def _reason_to_stop(self) -> StopReason | None:
        if self._cancel.is_cancelled():
            return "cancelled"
        if self._best_flow >= self._sufficient_share * self._known_bound:
            return "bound reached"
        if self._best_flow >= self._sufficient_share * self._bound:
            return "optimal"
        if self.left_s <= 0:
            return "time limit"
        return None

    def _report(self) -> None:
        if self.best is None:
            return
        self._progress(
            Incumbent(
                elapsed_s=self._clock() - self._started_s,
                flow_tokens_per_s=self._best_flow,
                upper_bound_tokens_per_s=self._bound_above_best(),
                placer=self._placer_name,
                placement=self.best,
            )
        )

    def _bound_above_best(self) -> float:
        """A solver's bound holds to its own tolerance only; an exact flow above it raises it."""
        return max(self._bound, self._best_flow)


class StageWatch:
    """Hears one solver for the search: the placements of its model, its bounds if they are proofs.

    `ends_with_s` is what must remain of the search's time when the stage ends.
    """

    def __init__(
        self,
        search: MilpSearch,
        *,
        built: PlacementModel,
        proves_bounds: bool,
        ends_with_s: float,
    ) -> None:
        self._search = search
        self._built = built
        self._proves_bounds = proves_bounds
        self._ends_with_s = ends_with_s

    def on_solution(self, values: Sequence[float]) -> None:
        self._search.consider(self._built.placement_of(values))

    def on_bound(self, upper_bound: float) -> None:
        if self._proves_bounds:
            self._search.tighten(upper_bound * self._built.flow_unit_tokens_per_s)

    def should_stop(self) -> bool:
        return self._search.should_stop() or self._search.left_s <= self._ends_with_s
