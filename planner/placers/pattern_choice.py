"""The integer program over patterns: which stages, so that every layer is held at a given flow."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from planner.placers.patterns import PatternPool, StagePattern
from planner.placers.solvers.base import MixedIntegerModel, SolveLimits
from planner.placers.solvers.choice import solve
from planner.placers.stop import ProgramLimits

_ENOUGH = 1e-6  # layers
# Of one integer program. Nodes, not seconds: the same stages are found on any machine.
_NODES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Chosen stages, each as often as it is used; None when no choice holds every layer.

    `is_proven` tells a proof of "none" from a search that ran out of time.
    """

    stages: tuple[StagePattern, ...] | None
    is_proven: bool
    solver: str


class _FirstThatHolds:
    """Stops the solver at the first choice that holds every layer, or when none can."""

    def __init__(
        self, num_layers: int, layers_of: Sequence[float], should_stop: Callable[[], bool]
    ) -> None:
        self._num_layers = num_layers
        self._layers_of = layers_of
        self._should_stop = should_stop
        self._bound = float("inf")
        self.found: list[int] | None = None

    def on_solution(self, values: Sequence[float]) -> None:
        counts = [round(value) for value in values]
        held = sum(layers * count for layers, count in zip(self._layers_of, counts, strict=True))
        if self.found is None and held >= self._num_layers - _ENOUGH:
            self.found = counts

    def on_bound(self, upper_bound: float) -> None:
        self._bound = min(self._bound, upper_bound)

    @property
    def is_impossible(self) -> bool:
        return self._bound < self._num_layers - _ENOUGH

    def should_stop(self) -> bool:
        return self.found is not None or self.is_impossible or self._should_stop()


def choose_stages(
    pool: PatternPool,
    *,
    flow: float,
    num_layers: int,
    limits: ProgramLimits,
    should_stop: Callable[[], bool],
) -> Choice:
    """maximise held layers over whole numbers of the pool's patterns that carry the flow.

    sum over patterns of count of kind * y <= nodes of the kind; extra rows as the pool has them.
    """
    patterns = pool.patterns_for(flow)
    row_limits = pool.row_limits()
    model = MixedIntegerModel()
    terms: list[list[tuple[float, int]]] = [[] for _ in row_limits]
    for pattern in patterns:
        use = pool.use_of_rows(pattern)
        most = min(
            (int(row_limits[row] // amount) for row, amount in pattern.counts),
            default=num_layers,
        )
        variable = model.add_integer(upper=min(most, -(-num_layers // pattern.layers)))
        model.objective[variable] = float(pattern.layers)
        for row, amount in use.items():
            terms[row].append((amount, variable))
    for column in pool.rows.extra_columns:
        variable = model.add_integer(upper=int(column.upper))
        model.objective[variable] = column.value
        for row, amount in column.use_of_rows.items():
            terms[row].append((amount, variable))
    for row, limit in enumerate(row_limits):
        model.add_at_most(terms[row], limit)
    watcher = _FirstThatHolds(num_layers, model.objective, should_stop)
    solved = solve(
        limits.solver,
        model,
        start=None,
        limits=SolveLimits(
            time_limit_s=limits.stop.left_s,
            relative_gap=1e-6,
            seed=limits.seed,
            node_limit=_NODES,
        ),
        watcher=watcher,
    )
    if watcher.found is None:
        return Choice(
            stages=None,
            is_proven=watcher.is_impossible or solved.outcome.cause == "optimal",
            solver=solved.solver,
        )
    stages = tuple(
        pattern
        for pattern, count in zip(patterns, watcher.found, strict=False)
        for _ in range(count)
    )
    return Choice(stages=stages, is_proven=True, solver=solved.solver)
