"""Layer ranges around a running placement, annealed until every layer has its target speed.

Works on coverage: the flow, if links do not bind and partial inference is allowed.
"""

import numpy as np

from planner.capacity import allowed_layers, throughput_tokens_per_s
from planner.domain.placement import LayerRange, Placement
from planner.domain.problem import Problem
from planner.domain.rules import PlacementRules
from planner.placers.compiled.loops import anneal_moves
from planner.placers.compiled.tasks import MoveTask, first_random

_UNITS_PER_TOKEN = 1000
_PENALTY_SHARE = 0.15


def coverage_tokens_per_s(problem: Problem, placement: Placement) -> float:
    """The speed of the slowest layer's nodes together: no flow of the placement exceeds it."""
    coverage = [0.0] * problem.model.num_layers
    for name, held in placement.layers.items():
        speed = throughput_tokens_per_s(problem, name, len(held))
        for layer in range(held.first, held.end):
            coverage[layer] += speed
    return min(coverage)


class RangeAnnealing:
    """Anneals layer ranges around `running`; made once for a problem, used for many attempts."""

    def __init__(self, problem: Problem, running: Placement, *, rules: PlacementRules) -> None:
        self._problem = problem
        self._running = running
        self._names = [node.name for node in problem.cluster.nodes]
        limits = {name: allowed_layers(problem, name, rules) for name in self._names}
        self._speeds_NJ = np.zeros((len(self._names), 1 + max(limits.values())), dtype=np.int64)
        for number, name in enumerate(self._names):
            for layers in range(1, limits[name] + 1):
                speed = throughput_tokens_per_s(problem, name, layers)
                self._speeds_NJ[number, layers] = int(speed * _UNITS_PER_TOKEN)
        self._limits_N = np.array(
            [0 if name in rules.pinned else limits[name] for name in self._names]
        )

    def attempt(
        self,
        start: Placement,
        *,
        target_tokens_per_s: float,
        budget_layers: int,
        hotness: float,
        moves: int,
        seed: int,
    ) -> Placement:
        """Where one annealing towards the target ends, moving at most `budget_layers` or not.

        `hotness` 0.1 to 1 is the share of a whole layer's target that a change for the worse may
        cost at first. The same arguments give the same answer.
        """
        target = max(1, int(target_tokens_per_s * _UNITS_PER_TOKEN))
        task = MoveTask(
            num_layers=self._problem.model.num_layers,
            target=target,
            speeds_NJ=self._speeds_NJ,
            limits_N=self._limits_N,
            running=self._ranges(self._running),
            budget_layers=budget_layers,
            penalty=max(1, int(target * _PENALTY_SHARE)),
        )
        _, ranges = anneal_moves(
            task,
            ranges=self._ranges(start),
            threshold=int(target * hotness),
            moves=moves,
            seed=first_random(seed),
        )
        return Placement(
            layers={
                name: LayerRange(first=first, end=end)
                for name, (first, end) in zip(self._names, ranges, strict=True)
                if end > first
            }
        )

    def _ranges(self, placement: Placement) -> list[tuple[int, int]]:
        held = [placement.layers.get(name) for name in self._names]
        return [(0, 0) if layers is None else (layers.first, layers.end) for layers in held]
