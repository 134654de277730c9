"""The default search: every placer in turn, each from the best so far, until nothing is to gain.

1. The stage-pattern program: a second at most, and often the best aligned stages there are. With a
   hop limit, which annealing rarely betters, again: from another start it prices other patterns.
2. The quick bounds; wherever a bound is reached, the search ends.
3. Where links are slow or share bandwidth: regions apart, regions in levels (for what is shared),
   wide stages and chains of regions, then the bounds that charge the links.
4. Rounds of annealing, each twice as long as the one before: on stages where links are slow or the
   number of hops is limited, on staggered ranges where partial inference allows them.
5. On few nodes, the MILP, which can prove that no better placement exists.

Every step is limited in work (columns, branches, moves), so a seed gives the same incumbents in the
same order on any machine; the clock only ends that order. (The MILP's own stages are timed.)
"""

import time
from collections.abc import Callable
from dataclasses import replace

from planner.bounds import crossing_bounds, quick_bounds, upper_bound_tokens_per_s
from planner.domain.placement import Placement
from planner.domain.plan import Incumbent
from planner.domain.problem import Problem
from planner.placers.annealing import AnnealingOptions
from planner.placers.base import (
    START,
    CancelToken,
    Placer,
    PlacerOptions,
    Progress,
    SearchOptions,
    SearchResult,
    StopReason,
)
from planner.placers.flow_meter import FlowMeter
from planner.placers.flow_tables import flow_tables
from planner.placers.interval_annealing import IntervalAnnealingPlacer
from planner.placers.milp import MilpPlacer
from planner.placers.region_chain import RegionChainPlacer
from planner.placers.region_levels import RegionLevelsPlacer
from planner.placers.regions_apart import RegionsApartPlacer
from planner.placers.solvers.base import SolverName
from planner.placers.stage_annealing import StageAnnealingPlacer
from planner.placers.stage_patterns import StagePatternPlacer

NAME = "auto"
NO_SOLVER = "none"
_FIRST_MOVES_PER_NODE = 2000
_FIRST_S_PER_TRY = 0.5
_ROUNDS = 12
# The MILP proves placements of so few nodes best in seconds; on more it rarely does.
_NODES_FOR_MILP = 8
_ROUNDS_BEFORE_MILP = 2


class PortfolioPlacer:
    """Seeds each placer with what the others found."""

    def __init__(
        self, *, options: PlacerOptions, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._options = options
        self._clock = clock

    @property
    def name(self) -> str:
        return NAME

    def search(
        self,
        problem: Problem,
        *,
        options: SearchOptions,
        start: Placement | None,
        progress: Progress,
        cancel: CancelToken,
    ) -> SearchResult:
        """The best placement found, never worse than `start`; incumbents name their placer."""
        board = _Board(
            problem,
            options,
            relative_gap=self._options.relative_gap,
            upper_bound=min(
                self._options.known_upper_bound_tokens_per_s, upper_bound_tokens_per_s(problem)
            ),
            progress=progress,
            cancel=cancel,
            clock=self._clock,
        )
        if start is not None:
            board.start_from(start)
        board.run(self._pattern_placer())
        if options.rules.max_hops is not None:
            board.run(self._pattern_placer())
        for bound in quick_bounds(problem, rules=options.rules):
            board.tighten(bound.tokens_per_s)
            if board.should_stop():
                break
        self._improve(problem, options, board)
        return board.result()

    def _pattern_placer(self) -> Placer:
        solver: SolverName = "gurobi" if self._options.solver == "gurobi" else "highs"
        return StagePatternPlacer(solver=solver, clock=self._clock)

    def _improve(self, problem: Problem, options: SearchOptions, board: "_Board") -> None:
        if board.should_stop():
            return
        few_nodes = len(problem.cluster.nodes) <= _NODES_FOR_MILP
        tables = flow_tables(problem, options.rules, bound_tokens_per_s=board.upper_bound)
        shares = bool(problem.cluster.shared)
        slow_links = bool(tables.names) and (shares or tables.links_may_bind())
        if slow_links:
            board.run(RegionsApartPlacer(clock=self._clock))
            if shares:
                board.run(RegionLevelsPlacer(clock=self._clock))
            board.run(RegionChainPlacer(clock=self._clock))
            self._charge_links(problem, options, board)
        aligned = slow_links or not options.partial_inference or options.rules.max_hops is not None
        staggered = options.partial_inference and options.rules.max_hops is None
        for number in range(_ROUNDS_BEFORE_MILP if few_nodes else _ROUNDS):
            if aligned:
                board.run(
                    StageAnnealingPlacer(
                        annealing=self._annealing(board, number), clock=self._clock
                    )
                )
            if staggered:
                board.run(
                    IntervalAnnealingPlacer(
                        annealing=self._annealing(board, number), clock=self._clock
                    )
                )
        if few_nodes:
            board.run(
                MilpPlacer(
                    options=replace(
                        self._options, known_upper_bound_tokens_per_s=board.upper_bound
                    ),
                    clock=self._clock,
                )
            )

    def _charge_links(self, problem: Problem, options: SearchOptions, board: "_Board") -> None:
        for bound in crossing_bounds(
            problem,
            rules=options.rules,
            known_bound_tokens_per_s=board.upper_bound,
            should_stop=board.should_stop,
        ):
            board.tighten(bound.tokens_per_s)

    def _annealing(self, board: "_Board", number: int) -> AnnealingOptions:
        return AnnealingOptions(
            moves_per_node=_FIRST_MOVES_PER_NODE * 2**number,
            most_s_per_try=_FIRST_S_PER_TRY * 2**number,
            known_upper_bound_tokens_per_s=board.upper_bound,
            relative_gap=self._options.relative_gap,
        )


class _Board:
    """The best placement and bound of all placers, told to whoever listens when one improves."""

    def __init__(
        self,
        problem: Problem,
        options: SearchOptions,
        *,
        relative_gap: float,
        upper_bound: float,
        progress: Progress,
        cancel: CancelToken,
        clock: Callable[[], float],
    ) -> None:
        self.upper_bound = upper_bound
        self._problem = problem
        self._options = options
        self._sufficient_share = 1 - relative_gap
        self._progress = progress
        self._cancel = cancel
        self._clock = clock
        self._started_s = clock()
        self._best: Placement | None = None
        self._best_flow = 0.0
        self._best_placer = ""
        self._solvers: list[str] = []
        self._runs = 0
        self._last_reason: StopReason = "heuristic"

    @property
    def left_s(self) -> float:
        return self._options.time_limit_s - (self._clock() - self._started_s)

    def start_from(self, placement: Placement) -> None:
        """A placement from elsewhere: only better bounds are reported with it."""
        flow = FlowMeter(self._problem, self._options).tokens_per_s(placement)
        if flow > 0:
            self._best, self._best_flow, self._best_placer = placement, flow, START

    def should_stop(self) -> bool:
        return self._cancel.is_cancelled() or self.left_s <= 0 or self._is_at_bound()

    def run(self, placer: Placer) -> None:
        """Let a placer search from the best so far, with a seed of its own, unless all is done."""
        if self.should_stop():
            return
        self._runs += 1
        result = placer.search(
            self._problem,
            options=SearchOptions(
                time_limit_s=self.left_s,
                partial_inference=self._options.partial_inference,
                seed=self._options.seed * 101 + self._runs,
                rules=self._options.rules,
            ),
            start=self._best,
            progress=self._hear,
            cancel=self._cancel,
        )
        self._last_reason = result.stop_reason
        if result.solver not in (NO_SOLVER, *self._solvers):
            self._solvers.append(result.solver)
        self.tighten(result.upper_bound_tokens_per_s)

    def tighten(self, bound_tokens_per_s: float) -> None:
        if bound_tokens_per_s < self.upper_bound:
            self.upper_bound = bound_tokens_per_s
            self._tell()

    def result(self) -> SearchResult:
        return SearchResult(
            placement=self._best,
            upper_bound_tokens_per_s=max(self.upper_bound, self._best_flow),
            stop_reason=self._reason(),
            solver=", then ".join(self._solvers) or NO_SOLVER,
        )

    def _is_at_bound(self) -> bool:
        return self._best_flow >= self._sufficient_share * self.upper_bound

    def _reason(self) -> StopReason:
        if self._last_reason == "optimal":
            return "optimal"
        if self._cancel.is_cancelled():
            return "cancelled"
        if self._is_at_bound():
            return "bound reached"
        return "time limit" if self.left_s <= 0 else "heuristic"

    def _hear(self, incumbent: Incumbent) -> None:
        """A placer's incumbent, whose flow is exact."""
        self.upper_bound = min(self.upper_bound, incumbent.upper_bound_tokens_per_s)
        if incumbent.flow_tokens_per_s > self._best_flow:
            self._best, self._best_flow = incumbent.placement, incumbent.flow_tokens_per_s
            self._best_placer = incumbent.placer
        self._tell()

    def _tell(self) -> None:
        if self._best is not None:
            self._progress(
                Incumbent(
                    elapsed_s=self._clock() - self._started_s,
                    flow_tokens_per_s=self._best_flow,
                    upper_bound_tokens_per_s=max(self.upper_bound, self._best_flow),
                    placer=self._best_placer,
                    placement=self._best,
                )
            )
