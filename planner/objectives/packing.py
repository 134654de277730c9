"""Components that serve together: of all that are known, disjoint ones of the largest sum.

maximise sum over components of value * y, sum over those with node n of y <= 1, y in {0, 1}.
"""

from collections.abc import Callable

from planner.domain.placement import Placement, together
from planner.domain.problem import Problem
from planner.placers.solvers.base import LastSolution, SolveLimits, packing_model
from planner.placers.solvers.choice import solve
from planner.placers.stop import ProgramLimits

_NODES = 1000  # of one program


class Packing:
    """The best component known on every set of nodes, and what nodes are worth in a choice."""

    def __init__(self, problem: Problem) -> None:
        self._row_of = {node.name: row for row, node in enumerate(problem.cluster.nodes)}
        self._speed_of = {
            node.name: max(
                (
                    layers * speed
                    for layers, speed in enumerate(problem.profile_of(node.name).tokens_per_s, 1)
                ),
                default=0.0,
            )
            for node in problem.cluster.nodes
        }
        self._known: dict[frozenset[str], tuple[float, Placement]] = {}
        self._worth_of: dict[str, float] = {}

    def offer(self, placement: Placement, value: float) -> None:
        """A component and what it serves by estimate."""
        names = frozenset(placement.layers)
        if value > 0 and (names not in self._known or value > self._known[names][0]):
            self._known[names] = value, placement

    def packed(
        self, limits: ProgramLimits, value_of: Callable[[Placement], float | None] | None = None
    ) -> Placement | None:
        """The best packing; None if it has fewer than two parts. `value_of` gives newer values."""
        columns = [
            ((value_of(placement) if value_of else None) or value, placement)
            for value, placement in self._known.values()
        ]
        if len(columns) < 2:
            return None
        watcher = LastSolution(limits.stop.is_cancelled)
        solve(
            limits.solver,
            packing_model(
                [1.0] * len(self._row_of),
                [
                    (1, value, {self._row_of[name]: 1.0 for name in placement.layers})
                    for value, placement in columns
                ],
            ),
            limits=SolveLimits(
                time_limit_s=max(1.0, limits.stop.left_s),
                relative_gap=1e-6,
                seed=limits.seed,
                node_limit=_NODES,
            ),
            watcher=watcher,
        )
        chosen = [
            column
            for column, count in zip(columns, watcher.values or (), strict=False)
            if round(count)
        ]
        if value_of is None:
            self._worth_of = {}
            for value, placement in chosen:
                speed = sum(self._speed_of[name] for name in placement.layers)
                for name in placement.layers:
                    self._worth_of[name] = value * self._speed_of[name] / speed
        return together(part for _, part in chosen) if len(chosen) > 1 else None

    def worth(self, names: frozenset[str]) -> float:
        """The part of the last choice's value that these nodes carry, by their speed."""
        return sum(self._worth_of.get(name, 0.0) for name in names)
