"""Placing by stage patterns: for ever higher flows, stages chosen by an integer program.

Flows are tried from above in growing steps until stages are found, then by bisection.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from planner.bounds.knapsack import knapsack_bound_tokens_per_s
from planner.domain.placement import Placement
from planner.placers.base import StopReason
from planner.placers.board import Board
from planner.placers.patterns import PatternPool, StageNodes, StagePattern
from planner.placers.solvers.base import SolveLimits, packing_model
from planner.placers.solvers.choice import solve
from planner.placers.stages import filled_stages, placement_of_stages
from planner.placers.stop import ProgramLimits
from planner.tuning.flow import PatternSearchTuning as tuned

_WHOLE = 1 - 1e-9
_ENOUGH = 1e-6  # layers


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundStages:
    """Stages and the flow that each of them carries, links counted as their families count them."""

    stages: tuple[StageNodes, ...]
    tokens_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternProgram:
    """Chooses stages of `num_layers` layers together from a pool of patterns.

    `in_order` puts stages into the order in which they are placed; None: any will do.
    """

    pool: PatternPool
    num_layers: int
    in_order: Callable[[Sequence[StageNodes]], Sequence[StageNodes]] | None = None

    def placement(self, found: FoundStages) -> Placement:
        stages = found.stages if self.in_order is None else self.in_order(found.stages)
        return placement_of_stages(self.pool.kinds, stages)


def search_by_patterns(
    board: Board, programs: Callable[[], Iterable[PatternProgram]], *, seed: int, by: str
) -> StopReason:
    """Offer the placements that the programs lead to.

    Each program begins above what is known. Pinned nodes take no part; they join the stages that
    are found, and these are laid around them.
    """
    below = knapsack_bound_tokens_per_s(board.problem)
    board.begin_around_pins(by=by)
    for program in programs():
        limits = board.program_limits(seed)
        for found in improving_stages(
            program, above=board.tokens_per_s, below=below, limits=limits
        ):
            board.offer_free(program.placement(found), by=by)
    return "heuristic"


def improving_stages(
    program: PatternProgram, *, above: float, below: float, limits: ProgramLimits
) -> Iterator[FoundStages]:
    """Ever better stages that carry a flow between the two, links as the program sees them.

    Ends when no better ones can be chosen or the time is over.
    """
    pool, num_layers = program.pool, program.num_layers
    if below <= above or not pool.kinds:
        return

    def should_stop() -> bool:
        return limits.stop.is_over() or pool.num_priced >= tuned.MOST_PRICED

    low, high = above, below
    least = max(low, tuned.LEAST_SHARE * below)
    step = tuned.FIRST_STEP_DOWN
    target, has_found = high * (1 - tuned.RELATIVE_STEP), False
    while high - low > tuned.RELATIVE_STEP * high and target > least and not should_stop():
        target = max(target, low * (1 + tuned.RELATIVE_STEP / 2))
        chosen = None
        most = pool.most_layers(target, needed=num_layers, should_stop=should_stop)
        if most >= num_layers * _WHOLE:
            chosen = _chosen(program, flow=target, limits=limits, should_stop=should_stop)
        if chosen is not None:
            stages = filled_stages(pool.kinds, chosen, num_layers=num_layers)
            carried = pool.carries(stages)
            yield FoundStages(stages=stages, tokens_per_s=carried)
            low, has_found = max(target, carried), True
            target = (low + high) / 2
        else:
            high = target
            step = min(2 * step, tuned.MOST_STEP_DOWN)
            target = (low + high) / 2 if has_found else target * (1 - step)


def _chosen(
    program: PatternProgram,
    *,
    flow: float,
    limits: ProgramLimits,
    should_stop: Callable[[], bool],
) -> list[StagePattern] | None:
    """Stages that hold every layer at the flow, each as often as it is used; None: none found.

    Maximises the layers held by whole numbers of the pool's patterns that carry the flow, as long
    as that is below the model's:
    sum over patterns of count of kind * y <= nodes of the kind; extra rows as the pool has them.
    """
    pool, num_layers = program.pool, program.num_layers
    patterns, row_limits = pool.patterns_for(flow), pool.row_limits

    def most(pattern: StagePattern) -> int:
        by_nodes = (int(row_limits[row] // amount) for row, amount in pattern.counts)
        return min(min(by_nodes, default=num_layers), -(-num_layers // pattern.layers))

    model = packing_model(
        row_limits,
        [
            *((most(one), float(one.layers), pool.use_of_rows(one)) for one in patterns),
            *((int(one.upper), 0.0, one.use_of_rows) for one in pool.extra_columns),
        ],
    )
    watcher = _FirstThatHolds(num_layers, model.objective, should_stop)
    solved = solve(
        limits.solver,
        model,
        limits=SolveLimits(
            time_limit_s=limits.stop.left_s,
            relative_gap=1e-6,
            seed=limits.seed,
            node_limit=tuned.NODES,
        ),
        watcher=watcher,
    )
    if watcher.found is None:
        return None
    limits.used(solved.solver)
    counted = zip(patterns, watcher.found, strict=False)
    return [pattern for pattern, count in counted for _ in range(count)]


class _FirstThatHolds:
    """Stops the solver at the first choice that holds every layer, or when none can."""

    def __init__(
        self, num_layers: int, layers_of: Sequence[float], should_stop: Callable[[], bool]
    ) -> None:
        self._enough = num_layers - _ENOUGH
        self._layers_of = layers_of
        self._should_stop = should_stop
        self._bound = float("inf")
        self.found: list[int] | None = None

    def on_solution(self, values: Sequence[float]) -> None:
        counts = [round(value) for value in values]
        held = sum(layers * count for layers, count in zip(self._layers_of, counts, strict=True))
        if self.found is None and held >= self._enough:
            self.found = counts

    def on_bound(self, upper_bound: float) -> None:
        self._bound = min(self._bound, upper_bound)

    def should_stop(self) -> bool:
        return self.found is not None or self._bound < self._enough or self._should_stop()
