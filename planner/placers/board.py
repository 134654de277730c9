"""The best placement of a search and the tightest proven bound: all that its methods share.

A method is a function that offers placements to a board and, where it proves any, bounds. What is
best is the objective's to say; the flow that is reported is always an exact max flow.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeAlias

from planner.bounds.best import upper_bound_tokens_per_s
from planner.capacity import fits
from planner.domain.flow import Flow
from planner.domain.placement import Placement
from planner.domain.plan import Incumbent
from planner.domain.problem import Problem
from planner.flow_graph import FlowGraphs
from planner.max_flow import flow_value_tokens_per_s, max_flow
from planner.placers.around_pins import AroundPins
from planner.placers.base import Progress, SearchOptions, StopReason
from planner.placers.stop import ProgramLimits, Stop

NO_SOLVER = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Score of a placement: a larger `merit` is better.

    `objective_value` is what is reported besides the flow (None where the flow is the objective).
    """

    flow_tokens_per_s: float
    merit: tuple[float, ...]
    objective_value: float | None = None


class Objective(Protocol):
    """The objective of a search, to maximise."""

    def score(self, placement: Placement) -> Score:
        """Raises InvalidPlacement."""
        ...


class LargestFlow:
    """The paper's objective: the exact max flow."""

    def __init__(self, problem: Problem, options: SearchOptions) -> None:
        self._problem = problem
        self._graphs = FlowGraphs(
            problem,
            partial_inference=options.partial_inference,
            max_hops=options.rules.max_hops,
        )

    def tokens_per_s(self, placement: Placement) -> float:
        """The max flow of a placement; raises InvalidPlacement."""
        return flow_value_tokens_per_s(self._problem, self._graphs.graph_of(placement))

    def score(self, placement: Placement) -> Score:
        flow = self.tokens_per_s(placement)
        return Score(flow_tokens_per_s=flow, merit=(flow,))


def flow_under(options: SearchOptions, problem: Problem, placement: Placement) -> Flow:
    """The max flow under a search's options, with all that flows where.

    Raises InvalidPlacement.
    """
    return max_flow(
        problem,
        placement,
        partial_inference=options.partial_inference,
        max_hops=options.rules.max_hops,
    )


class Board:
    """The best so far of one search.

    `progress` hears of every better placement and of every tighter bound. Only
    placements that are better than none (of merit above 0) are taken.
    """

    def __init__(
        self,
        problem: Problem,
        options: SearchOptions,
        *,
        stop: Stop,
        progress: Progress = lambda _: None,
        objective: Objective | None = None,
        flow_bound_tokens_per_s: float | None = None,
    ) -> None:
        """The objective is the flow, the bound `planner.bounds`' quick one unless given."""
        self.problem = problem
        self.options = options
        self.stop = stop
        self._progress = progress
        self._objective = objective or LargestFlow(problem, options)
        self._flow_bound = (
            upper_bound_tokens_per_s(problem)
            if flow_bound_tokens_per_s is None
            else flow_bound_tokens_per_s
        )
        # On the merit, where the objective is not the flow and its bound another.
        self.merit_bound: float | None = None
        self.placement: Placement | None = None
        self.placer = ""
        self._score = Score(flow_tokens_per_s=0.0, merit=(0.0,))
        self._solvers: list[str] = []

    @property
    def tokens_per_s(self) -> float:
        """The flow of the best placement, 0 without one."""
        return self._score.flow_tokens_per_s

    @property
    def merit(self) -> float:
        return self._score.merit[0]

    @property
    def proven_bound_tokens_per_s(self) -> float:
        """The proven bound on the flow."""
        return self._flow_bound

    @property
    def upper_bound_tokens_per_s(self) -> float:
        """A solver's bound holds to its own tolerance only; an exact flow above it raises it."""
        return max(self._flow_bound, self.tokens_per_s)

    @property
    def solver(self) -> str:
        """Solvers that were used, in order, each with the first reason why not another."""
        return ", then ".join(self._solvers) or NO_SOLVER

    def used(self, solver: str) -> None:
        name, *_ = solver.split(" ")
        if not any(known.startswith(name) for known in self._solvers):
            self._solvers.append(solver)

    def program_limits(self, seed: int) -> ProgramLimits:
        """Limits of a method's pattern programs; the board records the solvers used."""
        return ProgramLimits(seed=seed, solver=self.options.solver, stop=self.stop, used=self.used)

    def offer(self, placement: Placement, *, by: str, bound_tokens_per_s: float = math.inf) -> None:
        """Take the placement if it is better and the bound if it is tighter; report either."""
        self.take(
            placement,
            self._objective.score(placement),
            by=by,
            bound_tokens_per_s=bound_tokens_per_s,
        )

    def take(
        self,
        placement: Placement,
        score: Score,
        *,
        by: str,
        bound_tokens_per_s: float = math.inf,
    ) -> None:
        """As `offer`, for a placement whose score is known."""
        is_better = score.merit > self._score.merit
        if is_better:
            self.placement, self._score, self.placer = placement, score, by
        self.tighten(bound_tokens_per_s, is_news=is_better)

    def tighten(self, bound_tokens_per_s: float, *, is_news: bool = False) -> None:
        """Take a proven bound on every placement's flow if it is tighter, and report it."""
        is_news |= bound_tokens_per_s < self._flow_bound
        self._flow_bound = min(self._flow_bound, bound_tokens_per_s)
        if is_news:
            self._report()

    def tighten_merit(self, bound: float) -> None:
        """Take a proven bound on every placement's merit, and report it."""
        self.merit_bound = bound
        self._report()

    @property
    def objective_bound(self) -> float | None:
        """No objective value exceeds it; a value above what was proven raises it."""
        return None if self.merit_bound is None else max(self.merit_bound, self.merit)

    @property
    def most_merit(self) -> float:
        """No merit exceeds it: a bound on the flow unless one on another objective is proven."""
        bound = self.objective_bound
        return self.upper_bound_tokens_per_s if bound is None else bound

    def _report(self) -> None:
        if self.placement is not None:
            self._progress(
                Incumbent(
                    elapsed_s=self.stop.elapsed_s,
                    flow_tokens_per_s=self.tokens_per_s,
                    upper_bound_tokens_per_s=self.upper_bound_tokens_per_s,
                    placer=self.placer,
                    placement=self.placement,
                    objective_value=self._score.objective_value,
                    objective_bound=self.objective_bound,
                )
            )

    def is_at_bound(self) -> bool:
        bound = self._flow_bound if self.merit_bound is None else self.merit_bound
        return self.merit >= bound * (1 - self.options.relative_gap)

    def is_done(self) -> bool:
        return self.stop.is_over() or self.is_at_bound()

    def stop_reason(self, own: StopReason = "heuristic") -> StopReason:
        """Why the search ended, if its last method ended by itself with `own`."""
        if own == "optimal":
            return own
        if self.stop.is_cancelled():
            return "cancelled"
        if self.is_at_bound():
            return "bound reached"
        return "time limit" if self.stop.left_s <= 0 else own

    def apart(self) -> "Board":
        """A board without a placement; its incumbents are offered to this one."""

        def hear(incumbent: Incumbent, /) -> None:
            bound = incumbent.upper_bound_tokens_per_s
            self.offer(incumbent.placement, by=incumbent.placer, bound_tokens_per_s=bound)

        own = Board(
            self.problem,
            self.options,
            stop=self.stop,
            progress=hear,
            objective=self._objective,
            flow_bound_tokens_per_s=self._flow_bound,
        )
        own._solvers = self._solvers
        return own

    @cached_property
    def _around_pins(self) -> AroundPins | None:
        """Places stages around pins, or where the model's ends cost memory; None otherwise."""
        nodes = self.problem.cluster.nodes
        if self.options.rules.pinned or any(
            self.problem.profile_of(node.name).memory is not None for node in nodes
        ):
            return AroundPins(self.problem, self.options.rules)
        return None

    def begin_around_pins(self, *, by: str) -> None:
        """Lay stages before anything is found, where nodes are pinned or the ends cost memory."""
        if self._around_pins is not None:
            for order in self._around_pins.first_orders():
                self._offer_laid(self._around_pins, order, by=by)

    def offer_free(self, placement: Placement, *, by: str) -> None:
        """Offer a placement of the free nodes.

        Puts pinned nodes in their places, and tries the stages laid around these as well. What
        gives a node more layers than it has memory for at an end of the model is laid again as
        stages.
        """
        if self._around_pins is None:
            self.offer(placement, by=by)
            return
        pinned = dict(self.options.rules.pinned)
        with_pins = Placement(layers=dict(placement.layers) | pinned)
        if all(fits(self.problem, name, held) for name, held in with_pins.layers.items()):
            self.offer(with_pins, by=by)
            if not pinned:
                return
        for order in self._around_pins.orders_of(placement):
            self._offer_laid(self._around_pins, order, by=by)

    def _offer_laid(self, around_pins: AroundPins, order: list[str], *, by: str) -> None:
        laid = around_pins.laid(order, above_tokens_per_s=self.tokens_per_s)
        if laid is not None:
            self.offer(laid, by=by)


Method: TypeAlias = Callable[[Board, int], StopReason]
"""Searches for better placements than the board's, by a seed; returns why it ended by itself."""
