"""Searches aligned stages for what they are estimated to serve: `planner.estimate`, annealed.

Rounds of annealing, each from the best candidates known, each longer than the one before, until
two rounds in a row find nothing better. Pinned nodes take no part; who asks adds them.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from planner.capacity import allowed_limits, throughput_tokens_per_s
from planner.domain.cluster import COORDINATOR
from planner.domain.placement import LayerRange, Placement
from planner.domain.problem import Problem
from planner.domain.rules import PlacementRules
from planner.estimate.compiled.stage_search import (
    IDLE,
    Aim,
    Cooling,
    SearchTask,
    Stages,
    anneal,
)
from planner.estimate.estimate import Estimator
from planner.estimate.shared import Reals, SharedLinks
from planner.link_matrix import links_between
from planner.timing import hop_s


class StageSearch:
    """One component: the nodes `names` of the estimator's problem, which may be idle."""

    def __init__(
        self,
        estimator: Estimator,
        *,
        names: Sequence[str],
        rules: PlacementRules,
        aim: Aim = Aim.THROUGHPUT,
        demand_tokens_per_s: float = 0.0,
        price_of: Mapping[str, float] | None = None,
    ) -> None:
        problem = estimator.figures.problem
        self.names = tuple(name for name in names if name not in rules.pinned)
        most = [allowed_limits(problem, name, rules) for name in self.names]
        width = max((one.middle for one in most), default=0) + 1
        speeds, limits = (np.zeros((len(self.names), width)) for _ in range(2))
        rooms = np.zeros((4, len(self.names), width))
        for row, (name, one) in enumerate(zip(self.names, most, strict=True)):
            for held in range(1, one.middle + 1):
                speeds[row, held] = throughput_tokens_per_s(problem, name, held)
                for at in range(4):
                    rooms[at, row, held] = estimator.figures.room(
                        name, held=held, layers=held, ends=(at % 2 == 1, at >= 2)
                    )
                limits[row, held] = estimator.figures.decode_limit(name, held=held)
        bandwidth, latency = _links(problem, self.names)
        prices = price_of or {}
        self.task = SearchTask(
            model=estimator.model,
            tables=estimator.figures.tables,
            num_layers=problem.model.num_layers,
            max_stages=min(rules.max_hops or len(self.names), len(self.names)),
            aim=aim,
            demand_tokens_per_s=demand_tokens_per_s,
            limits_NE=np.array(most, dtype=np.int64).reshape(len(self.names), 4),
            table_N=np.array(
                [estimator.figures.table_of[name] for name in self.names], dtype=np.int64
            ),
            step_s_N=np.array([estimator.figures.step_s(name) for name in self.names]),
            speeds_NJ=speeds,
            rooms_ENJ=rooms,
            limits_NJ=limits,
            bandwidth=bandwidth,
            latency=latency,
            shared=SharedLinks.of(problem.cluster, self.names),
            price_N=np.array([prices.get(name, 0.0) for name in self.names]),
        )

    def stages_of(self, placement: Placement) -> Stages | None:
        """The placement as stages, one component's nodes only; None where it is not aligned."""
        held = {name: placement.layers[name] for name in self.names if name in placement.layers}
        ranges = sorted({(one.first, one.end) for one in held.values()})
        ends = [end for _, end in ranges]
        if [first for first, _ in ranges] != [0, *ends][: len(ranges)]:
            return None
        if not ends or ends[-1] != self.task.num_layers or len(ranges) > self.task.max_stages:
            return None
        number_of = {first: number for number, (first, _) in enumerate(ranges)}
        return Stages(
            lengths=tuple(end - first for first, end in ranges),
            stage_of=tuple(
                number_of[held[name].first] if name in held else IDLE for name in self.names
            ),
        )

    def placement_of(self, stages: Stages) -> Placement:
        ends = np.cumsum(stages.lengths).tolist()
        return Placement(
            layers={
                name: LayerRange(first=ends[stage] - stages.lengths[stage], end=ends[stage])
                for name, stage in zip(self.names, stages.stage_of, strict=True)
                if stage != IDLE
            }
        )

    def score(self, stages: Stages) -> float:
        return anneal(self.task, stages, Cooling(moves=0, hot=1.0, cold=1.0, seed=0)).score

    def annealed(self, start: Stages, *, moves: int, hot: float, seed: int) -> tuple[float, Stages]:
        """(score, stages) of the best found from `start`."""
        found = anneal(self.task, start, Cooling(moves=moves, hot=hot, cold=hot / 100, seed=seed))
        return found.score, found.best

    def walked(self, start: Stages, *, moves: int, hot: float, seed: int) -> Stages:
        """Where a walk at one hotness ends, better or worse than `start`."""
        return anneal(self.task, start, Cooling(moves=moves, hot=hot, cold=hot, seed=seed)).last


def _links(problem: Problem, names: Sequence[str]) -> tuple[Reals, Reals]:
    """Bandwidth and latency between all names, the coordinator last; 0 where there is no link.

    Latencies are those of `planner.timing.latency_s`.
    """
    bandwidth, latency = links_between(problem.cluster, [*names, COORDINATOR])
    hops = np.array([hop_s(problem, name) for name in names])
    latency[:-1, :-1] += (hops[:, None] + hops) / 2
    latency[:-1, -1] += hops
    latency[-1, :-1] += hops
    return bandwidth, latency
