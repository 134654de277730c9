"""Placements that survive the loss of any one node: the N-1 flow, its bounds and a search for it.

The N-1 flow of a placement is the least max flow that is left when one node fails and all others
keep their layers. Where links do not bind it is the least, over layers, of the speed of the nodes
that hold the layer without the fastest of them: programs and annealing go by that, and every
placement is measured by exact flows, one for each loss.

1. The baselines, and stages that need not their fastest node, by the pattern program.
2. The bounds: without any one node (knapsack), and covers with a spare for every layer (pattern).
3. A share of the time for the best plain flow, which may know links that the rest does not.
4. Annealing from the best so far towards flows between it and the bound, each round longer.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from planner.bounds.knapsack import knapsack_bound_tokens_per_s
from planner.bounds.node_kinds import NO_RULES, node_kinds
from planner.bounds.pattern import pattern_bounds_tokens_per_s
from planner.capacity import allowed_layers
from planner.domain.flow import Flow
from planner.domain.placement import Placement
from planner.domain.problem import Problem
from planner.domain.rules import PlacementRules
from planner.feasibility import check_reach, check_rules, conform, restricted_problem
from planner.flow_check import check_flow
from planner.placers.annealing import Try
from planner.placers.base import START, CancelToken, InvalidOptions, Progress, StopReason
from planner.placers.board import Board, Score
from planner.placers.compiled.loops import is_compiled
from planner.placers.flow_meter import flow_under
from planner.placers.flow_tables import flow_tables
from planner.placers.interval_annealing import IntervalAnnealer
from planner.placers.pattern_placing import improving
from planner.placers.stage_patterns import AlignedStages
from planner.placers.stop import ProgramLimits, Stop
from planner.plan_options import BASELINES, PlanOptions
from planner.planning import NoPlacementFound, compute_plan, objective_of

_SPARES = 1
_PATTERN_SHARE, _PLAIN_SHARE = 0.3, 0.2  # of the time
_ROUNDS = 60
# Where between the best and the bound a round aims; a success begins anew.
_SHARES = (0.25, 0.5, 0.1, 0.75, 0.02, 0.9)
_MOST_FAILURES = 4 * len(_SHARES)  # in turn; as many longer rounds have not found more
_FIRST_MOVES_PER_NODE, _MOST_MOVES = 1000, 2_000_000
_CHUNK_MOVES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Survival:
    """What is left of the objective's value when the worst node is lost.

    No node is the worst, "", if every single loss costs nothing.
    """

    value: float
    worst_node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RobustPlan:
    """A placement with its max flow, what of it survives, and a bound on what any one's can.

    `method` found the placement; `solver` solved its programs, "none" where there were none.
    """

    placement: Placement
    flow: Flow
    survival: Survival
    survival_bound_tokens_per_s: float
    method: str
    solver: str
    stop_reason: StopReason


def survival(problem: Problem, placement: Placement, *, options: PlanOptions) -> Survival:
    """The N-1 value of the options' objective: the exact flow, or what is estimated to be served.

    For the flow, what a node carries of one max flow is the most that its loss can take, so losses
    are tried by what they threaten until the rest cannot be worse. (Not with a hop limit: there a
    loss may let other connections in, and all are tried.)
    """
    objective = objective_of(problem, options)
    at_least = dict.fromkeys(placement.layers, 0.0)
    if options.objective == "flow" and options.rules.max_hops is None:
        whole = flow_under(options.search_options, problem, placement)
        for name in at_least:
            at_least[name] = whole.value_tokens_per_s - whole.nodes[name].flow_tokens_per_s
    worst = Survival(value=objective.score(placement).merit[0], worst_node="")
    of_class = _like_nodes(problem, placement)
    lost_before: set[tuple[object, ...]] = set()
    for name in sorted(at_least, key=lambda lost: (at_least[lost], lost)):
        if worst.value <= at_least[name]:
            break
        if of_class[name] in lost_before:
            continue
        lost_before.add(of_class[name])
        value = objective.score(placement.without({name})).merit[0]
        if value < worst.value:
            worst = Survival(value=value, worst_node=name)
    return worst


def _like_nodes(problem: Problem, placement: Placement) -> dict[str, tuple[object, ...]]:
    """What makes the loss of one node as bad as that of another, by node."""
    cluster = problem.cluster
    apart = {end for link in cluster.links for end in (link.source, link.target)}
    apart |= {member for shared in cluster.shared for member in shared.members}
    return {
        name: (
            held.first,
            held.end,
            cluster.node(name).compute_profile,
            cluster.region_of(name),
            placement.component_of(name),
            name if name in apart else "",
        )
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
    if len(names) == 1 or holdable < (1 + _SPARES) * num_layers:
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
        spares=_SPARES,
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
    """The placement with the best N-1 flow found in time; among equals the one with more flow.

    `progress` hears of every better placement and bound: an incumbent's `objective_value` is its
    N-1 flow, its bound one on the plain flow. A search that the clock does not end gives the same
    answer again. Raises as `compute_plan` does, and InvalidOptions for another objective than flow.
    """
    if options.objective != "flow":
        raise InvalidOptions(
            f"the objective is {options.objective!r}, but what survives a loss is known of the "
            "flow only: choose the objective 'flow', or do not ask to survive a loss"
        )
    stop = Stop(time_limit_s=options.time_limit_s, cancel=cancel, clock=clock)
    check_rules(problem, options.rules)
    problem = restricted_problem(problem, options.rules)
    check_reach(problem)
    options = replace(options, rules=options.rules.once_restricted)
    board = Board(
        problem,
        options.search_options,
        stop=stop,
        progress=progress,
        objective=_LargestSurvival(problem, options),
        flow_bound_tokens_per_s=knapsack_bound_tokens_per_s(problem),
    )
    placed = {name: place(problem) for name, place in BASELINES.items()} | {START: start}
    for name, placement in placed.items():
        if placement is not None:
            _offer(board, placement, by=name)
    for bound in survival_bounds_tokens_per_s(problem, rules=options.rules):
        board.merit_bound = bound
        if stop.is_over():
            break
    _place_patterns(board, options)
    _place_for_plain_flow(board, options)
    _anneal(board, options)
    if board.placement is None or board.tokens_per_s <= 0:
        raise NoPlacementFound("no placement that carries any flow was found; give it more time")
    flow = flow_under(options.search_options, problem, board.placement)
    check_flow(flow, problem=problem)
    return RobustPlan(
        placement=board.placement,
        flow=flow,
        survival=survival(problem, board.placement, options=options),
        survival_bound_tokens_per_s=max(board.merit_bound or 0.0, board.merit),
        method=board.placer,
        solver=board.solver,
        stop_reason=board.stop_reason(),
    )


class _LargestSurvival:
    """The objective: the N-1 flow, among equals the plain flow."""

    def __init__(self, problem: Problem, options: PlanOptions) -> None:
        self._problem = problem
        self._options = options

    def score(self, placement: Placement) -> Score:
        flow = flow_under(self._options.search_options, self._problem, placement).value_tokens_per_s
        left = survival(self._problem, placement, options=self._options).value
        return Score(flow_tokens_per_s=flow, merit=(left, flow), objective_value=left)


def _offer(board: Board, placement: Placement, *, by: str) -> None:
    board.offer(conform(board.problem, placement, board.options.rules), by=by)


def _place_patterns(board: Board, options: PlanOptions) -> None:
    """Stages of which each carries the flow without its fastest node too."""
    num_layers = options.rules.open_layers(board.problem.model.num_layers)
    if board.is_done() or num_layers == 0:
        return
    program = AlignedStages(board.problem, board.options, num_layers=num_layers, spares=_SPARES)
    limits = ProgramLimits(
        seed=options.seed,
        solver=board.options.pattern_solver,
        stop=board.stop.within(options.time_limit_s * _PATTERN_SHARE),
    )
    bound = board.merit_bound or 0.0
    for found in improving(program, above=board.merit, below=bound, limits=limits):
        board.used(found.solver)
        for placement in program.placements(found):
            _offer(board, placement, by="stage-patterns")


def _place_for_plain_flow(board: Board, options: PlanOptions) -> None:
    """In a share of the time; in all that is left where nothing can survive every loss."""
    can_survive = board.merit_bound != 0
    if board.stop.is_over() or (can_survive and board.is_at_bound()):
        return
    share = _PLAIN_SHARE if can_survive else 1.0
    limit_s = min(options.time_limit_s * share, board.stop.left_s)
    try:
        plain = compute_plan(
            board.problem,
            options=replace(options, time_limit_s=limit_s),
            progress=lambda _: None,
            cancel=board.stop,
            clock=board.stop.clock,
        )
    except NoPlacementFound:
        return
    _offer(board, plain.placement, by=plain.placer)


def _anneal(board: Board, options: PlanOptions) -> None:
    """Rounds of annealing on ranges, towards flows that survive."""
    plain_bound, bound = board.proven_bound_tokens_per_s, board.merit_bound or 0.0
    if plain_bound <= 0 or board.placement is None or not is_compiled():
        return
    tables = flow_tables(board.problem, options.rules, bound_tokens_per_s=plain_bound)
    annealer = IntervalAnnealer(spares=_SPARES)
    failed = 0
    for number in range(_ROUNDS if tables.names else 0):
        if board.is_done() or failed >= _MOST_FAILURES:
            break
        reached = board.merit
        effort = 2 ** (failed // len(_SHARES))
        found = annealer.attempt(
            tables,
            Try(
                target_tokens_per_s=reached + _SHARES[failed % len(_SHARES)] * (bound - reached),
                max_stages=len(tables.names),
                number=number,
                beside_pins=False,
                seed=options.seed * 1009 + number,
                moves=min(_MOST_MOVES, effort * _FIRST_MOVES_PER_NODE * len(tables.names)),
                best=board.placement,
            ),
            chunk_moves=_CHUNK_MOVES,
            stop=board.stop,
        )
        _offer(board, found, by="interval-annealing")
        failed = 0 if board.merit > reached else failed + 1
