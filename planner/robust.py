"""Placements that survive the loss of any one node: the N-1 value, its bounds and a search for it.

The N-1 value of a placement is the least that is left of the objective's value when one node fails
and all others keep their layers: of the exact max flow, or of what is estimated to be served.

1. The baselines and guards, and stages that need not their fastest node, by the pattern program.
2. For the flow, the bounds: without any one node (knapsack), and covers with a spare for every
   layer (pattern). Where links do not bind, the N-1 flow is the least, over layers, of the speed of
   the nodes that hold the layer without the fastest of them: programs and annealing go by that.
3. A share of the time for the best plain value, which may know links that the rest does not.
4. Annealing from the best so far: for the flow of ranges that cover every layer twice, each round
   with longer tries; else of stages on the least estimate that a loss leaves.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from planner.bounds.knapsack import knapsack_bound_tokens_per_s
from planner.bounds.node_kinds import NO_RULES, node_kinds
from planner.bounds.pattern import pattern_bounds_tokens_per_s
from planner.capacity import allowed_layers, whole_components
from planner.checked_plan import checked_plan
from planner.domain.placement import Placement
from planner.domain.plan import Plan
from planner.domain.plan_forecast import PlanForecast
from planner.domain.problem import Problem
from planner.domain.rules import PlacementRules
from planner.feasibility import applied, check_reach, conform
from planner.objectives.arena import Arena
from planner.objectives.contest import Contest
from planner.objectives.search import PLACER as STAGES
from planner.objectives.trial import Trials
from planner.placers.alignment import groups_of_like_nodes
from planner.placers.annealing import Effort
from planner.placers.base import START, CancelToken, Progress
from planner.placers.board import Board, Score, flow_under
from planner.placers.interval_annealing import search_interval_annealing
from planner.placers.pattern_search import improving_stages
from planner.placers.stage_patterns import aligned_stages, free_kinds
from planner.placers.stop import Stop
from planner.plan_options import BASELINES, PlanOptions
from planner.planning import (
    GUARDS,
    NoPlacementFound,
    compute_plan,
    objective_of,
)
from planner.tuning.served import RobustTuning as tuned

ROBUST = "robust"


@dataclass(frozen=True, slots=True, kw_only=True)
class Survival:
    """The objective's value that is left when the worst node is lost.

    No node is the worst, "", if every single loss costs nothing.
    """

    value: float
    worst_node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RobustPlan:
    """A plan, what of its objective survives, and a bound on what of any placement's can.

    No bound is known (None) where the objective is not the flow.
    """

    plan: Plan
    survival: Survival
    survival_bound_tokens_per_s: float | None


def survival(problem: Problem, placement: Placement, *, options: PlanOptions) -> Survival:
    """The N-1 value of the options' objective."""
    return _LargestSurvival(problem, options).worst_of(placement)


class _LargestSurvival:
    """The objective: the N-1 value of the options' objective, among equals its plain value."""

    def __init__(self, problem: Problem, options: PlanOptions) -> None:
        self._problem, self._options = problem, options
        self._objective = objective_of(problem, options)

    def score(self, placement: Placement) -> Score:
        whole = self._objective.score(placement)
        left = self.worst_of(placement).value
        return replace(whole, merit=(left, *whole.merit), objective_value=left)

    def worst_of(self, placement: Placement) -> Survival:
        """For the flow, what a node carries of one max flow is the most that its loss can take.

        So losses are tried by what they threaten until the rest cannot be worse. (Not with a hop
        limit: there a loss may let other connections in, and all are tried.)
        """
        options = self._options
        at_least = dict.fromkeys(placement.layers, 0.0)
        if options.objective == "flow" and options.rules.max_hops is None:
            whole = flow_under(options, self._problem, placement)
            for name in at_least:
                at_least[name] = whole.value_tokens_per_s - whole.nodes[name].flow_tokens_per_s
        worst = Survival(value=self._objective.score(placement).merit[0], worst_node="")
        of_class = _like_nodes(self._problem, placement)
        lost_before: set[tuple[object, ...]] = set()
        for name in sorted(at_least, key=lambda lost: (at_least[lost], lost)):
            if worst.value <= at_least[name]:
                break
            if of_class[name] in lost_before:
                continue
            lost_before.add(of_class[name])
            left = whole_components(self._problem, placement.without({name}))
            value = self._objective.score(left).merit[0]
            if value < worst.value:
                worst = Survival(value=value, worst_node=name)
        return worst


def _like_nodes(problem: Problem, placement: Placement) -> dict[str, tuple[object, ...]]:
    """Keys by node: nodes with equal keys have equally bad losses."""
    groups = groups_of_like_nodes(problem, NO_RULES)
    first_like = {name: names[0] for names in groups for name in names}
    return {
        name: (held, placement.component_of(name), first_like.get(name, name))
        for name, held in placement.layers.items()
    }


def survival_bounds_tokens_per_s(
    problem: Problem, *, rules: PlacementRules = NO_RULES
) -> Iterator[float]:
    """Ever tighter bounds on every placement's N-1 flow, as they are proven.

    0 where the nodes cannot hold every layer twice; else what the cluster without any one node can
    reach (knapsack); then covers of every layer with a spare (pattern).
    """
    num_layers = problem.model.num_layers
    names = [node.name for node in problem.cluster.nodes]
    holdable = sum(min(allowed_layers(problem, name, rules), num_layers) for name in names)
    if len(names) == 1 or holdable < (1 + tuned.SPARES) * num_layers:
        yield 0.0
        return
    one_of_each = {node.compute_profile: node.name for node in problem.cluster.nodes}
    known = min(
        knapsack_bound_tokens_per_s(replace(problem, cluster=problem.cluster.without({name})))
        for name in one_of_each.values()
    )
    yield known
    yield from pattern_bounds_tokens_per_s(
        node_kinds(problem, rules=rules),
        num_layers=num_layers,
        known_bound_tokens_per_s=known,
        spares=tuned.SPARES,
    )


def compute_robust_plan(
    problem: Problem,
    *,
    options: PlanOptions,
    start: Placement | None = None,
    progress: Progress = lambda _: None,
    cancel: CancelToken,
    clock: Callable[[], float] = time.monotonic,
) -> RobustPlan:
    """The plan with the best N-1 value found in time; among equals the one with more value.

    `progress` hears of every better placement and bound: an incumbent's `objective_value` is its
    N-1 value, its bound one on the plain flow. A search that the clock does not end gives the same
    answer again. Raises as `compute_plan` does.
    """
    stop = Stop(time_limit_s=options.time_limit_s, cancel=cancel, clock=clock)
    problem, rules = applied(problem, options.rules)
    check_reach(problem)
    options = replace(options, rules=rules)
    objective = _LargestSurvival(problem, options)
    board = Board(problem, options, stop=stop, progress=progress, objective=objective)
    placed = {name: place(problem) for name, place in (BASELINES | GUARDS).items()} | {START: start}
    for name, placement in placed.items():
        if placement is not None:
            _offer(board, placement, by=name)
    forecast = None
    if options.objective == "flow":
        _search_flow(board, options)
    else:
        forecast = _search_served(board, options)
    if board.placement is None or board.tokens_per_s <= 0:
        raise NoPlacementFound("no placement that carries any flow was found; give it more time")
    bound = board.merit_bound
    plan = checked_plan(
        problem,
        board.placement,
        partial_inference=options.partial_inference,
        max_hops=options.rules.max_hops,
        upper_bound_tokens_per_s=board.proven_bound_tokens_per_s,
        placer=f"{ROBUST} by {board.placer}",
        solver=board.solver,
        stop_reason=board.stop_reason(),
        elapsed_s=stop.elapsed_s,
    )
    return RobustPlan(
        plan=replace(plan, forecast=forecast),
        survival=objective.worst_of(board.placement),
        survival_bound_tokens_per_s=None if bound is None else max(bound, board.merit),
    )


def _offer(board: Board, placement: Placement, *, by: str) -> None:
    board.offer(conform(board.problem, placement, board.options.rules), by=by)


def _search_flow(board: Board, options: PlanOptions) -> None:
    for bound in survival_bounds_tokens_per_s(board.problem, rules=options.rules):
        board.merit_bound = bound
        if board.stop.is_over():
            break
    if not board.is_done():
        below = board.merit_bound or 0.0
        for placement in _by_patterns(board, options, above=board.merit, below=below):
            _offer(board, placement, by="stage-patterns")
    _place_for_plain_value(board, options)
    for number in range(tuned.ROUNDS):
        if board.is_done():
            break
        search_interval_annealing(
            board,
            options.seed * 101 + number,
            effort=Effort(
                moves_per_node=tuned.FIRST_MOVES_PER_NODE * 2**number,
                most_s_per_try=tuned.MOST_S_PER_TRY,
            ),
            spares=tuned.SPARES,
        )


def _search_served(board: Board, options: PlanOptions) -> PlanForecast | None:
    """Returns what the best is forecast to serve with all nodes; None if there is none."""
    problem, stop = board.problem, board.stop
    below = next(survival_bounds_tokens_per_s(problem, rules=options.rules))
    if below == 0:
        board.merit_bound = 0.0
        plain = _place_for_plain_value(board, options)
        return None if plain is None else plain.forecast
    trials = Trials(problem, options)
    names = [node.name for node in problem.cluster.nodes]
    arena = Arena(
        trials,
        names=names,
        rules=options.rules,
        seed=options.seed,
        survives=True,
    )
    for placement in _by_patterns(board, options, above=0.0, below=below):
        _offer(board, placement, by="stage-patterns")
        arena.offer(placement)
    _place_for_plain_value(board, options)
    if board.placement is None:
        return None
    arena.offer(board.placement)
    contest = Contest(trials, seed=options.seed)
    trial = trials.estimated(board.placement, placer=board.placer)
    forecast_s = min(contest.expected_s(trial, ()), tuned.FORECAST_SHARE * options.time_limit_s)
    searching = stop.earlier(forecast_s)
    arena.start()
    failed = 0
    for number in range(tuned.STAGE_ROUNDS):
        if searching.is_over() or failed >= tuned.MOST_FAILED_ROUNDS:
            break
        reached = board.merit
        arena.anneal(
            moves=1 + tuned.STAGE_MOVES // len(names) ** 2,
            hot=tuned.HOTNESS[number % len(tuned.HOTNESS)],
        )
        if arena.best is not None:
            _offer(board, arena.best, by=STAGES)
        failed = 0 if board.merit > reached else failed + 1
    trial = trials.estimated(board.placement, placer=board.placer)
    outcome = contest.decide([trial], (), neighbours=lambda _: (), stop=stop)
    return trials.forecast(trial, outcome.figures)


def _by_patterns(
    board: Board, options: PlanOptions, *, above: float, below: float
) -> Iterator[Placement]:
    """Stages of which each carries the flow without its fastest node too."""
    num_layers = options.rules.open_layers(board.problem.model.num_layers)
    if board.stop.is_over() or num_layers == 0:
        return
    program = aligned_stages(
        free_kinds(board.problem, board.options),
        num_layers=num_layers,
        max_stages=options.rules.max_hops,
        spares=tuned.SPARES,
    )
    stop = board.stop.within(options.time_limit_s * tuned.PATTERN_SHARE)
    limits = replace(board.program_limits(options.seed), stop=stop)
    for found in improving_stages(program, above=above, below=below, limits=limits):
        yield program.placement(found)


def _place_for_plain_value(board: Board, options: PlanOptions) -> Plan | None:
    """In a share of the time; in all that is left where nothing can survive every loss."""
    can_survive = board.merit_bound != 0
    if board.stop.is_over() or (can_survive and board.is_at_bound()):
        return None
    share = tuned.PLAIN_SHARE if can_survive else 1.0
    limit_s = min(options.time_limit_s * share, board.stop.left_s)
    try:
        plain = compute_plan(
            board.problem,
            options=replace(options, time_limit_s=limit_s),
            cancel=board.stop,
            clock=board.stop.clock,
        )
    except NoPlacementFound:
        return None
    _offer(board, plain.placement, by=plain.placer)
    return plain
