"""Searches aligned stages for what they are estimated to serve: annealing on `planner.estimate`.

A candidate is a sequence of stages: how many layers each holds, and which nodes (IDLE: none). All
nodes of a stage are linked to all of the next, with the shares that their speeds give them. Moves:
layers to a neighbour (a stage left without layers joins it) or to any stage, a node to another
stage or to none, two nodes or two stages exchanged, a stage split, a node made a stage of its own.

The loop is `planner/loops/stage_search.c`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.capacity import allowed_limits
from planner.chance import Schedule
from planner.domain.placement import LayerRange, Placement
from planner.domain.rules import PlacementRules
from planner.estimate.estimate import Estimator
from planner.native import POINTER, REAL, Packed, function
from planner.objectives.goal import Goal
from planner.speed_table import speeds_by_layers

IDLE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """Layers of each stage in order, and the stage of every node."""

    lengths: tuple[int, ...]
    stage_of: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """The best stages and their score, and where the search ended.

    The score is the aim's value of the estimate; 0 for stages that are empty, too long, not linked
    or of no speed.
    """

    score: float
    best: Stages
    last: Stages


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """Cost of loading layers that nodes do not hold now.

    A layer costs a share `charge` of the score, and a share `penalty` more beyond the budget. With
    a penalty, a search may begin with stages that serve nothing: these score below 0.
    """

    budget_layers: int
    charge: float = 0.0
    penalty: float = 0.05


NOTHING = Placement(layers={})
FREE = Loading(budget_layers=0, penalty=0.0)


class StageSearch:
    """One component: the nodes `names` of the estimator's problem, which may be idle.

    Pinned nodes take no part; callers add them.
    """

    def __init__(
        self,
        estimator: Estimator,
        *,
        names: Sequence[str],
        rules: PlacementRules,
        goal: Goal,
        running: Placement = NOTHING,
        survives: bool = False,
    ) -> None:
        """`running` is what nodes hold already, for `Loading`.

        With `survives`, the score is the least that is left when no node or any one is lost.
        """
        problem = estimator.figures.problem
        self.names = tuple(name for name in names if name not in rules.pinned)
        limits_NE = [allowed_limits(problem, name, rules) for name in self.names]
        self._num_layers = problem.model.num_layers
        self._max_stages = min(rules.max_hops or len(self.names), len(self.names))
        # N nodes; columns j are layers held, 0 .. J - 1. E are the ends of the model that a stage
        # has (`planner.capacity.LayerLimits`): 0 none, 1 the first layer, 2 the last, 3 both.
        speeds_NJ = speeds_by_layers(problem, self.names, limits_NE)
        width, limits_NJ = speeds_NJ.shape[1], np.zeros_like(speeds_NJ)
        rooms_ENJ = np.zeros((4, len(self.names), width))
        for row, (name, one) in enumerate(zip(self.names, limits_NE, strict=True)):
            for held in range(1, one.middle + 1):
                for at in range(4):
                    rooms_ENJ[at, row, held] = estimator.figures.room(
                        name, held=held, layers=held, ends=(at % 2 == 1, at >= 2)
                    )
                limits_NJ[row, held] = estimator.figures.decode_limit(name, held=held)
        figures = estimator.figures
        self.links = figures.links  # which the task points to
        self._task = Packed(
            nodes=len(self.names),
            num_layers=self._num_layers,
            max_stages=self._max_stages,
            row=width,
            aim=int(goal.aim),
            survives=int(survives),
            table_size=figures.tables.decode_s_KB.shape[1],
            demand=goal.demand_tokens_per_s,
            model=estimator.model.as_array(),
            links=self.links.packed.address,
            end=np.array([figures.end_of[name] for name in self.names], dtype=np.int64),
            most=np.array(limits_NE, dtype=np.int64).reshape(len(self.names), 4),
            table=np.array([figures.table_of[name] for name in self.names], dtype=np.int64),
            step_s=np.array([figures.step_s(name) for name in self.names], dtype=np.float64),
            speeds=speeds_NJ,
            rooms=rooms_ENJ,
            limits=limits_NJ,
            price=np.array([goal.cost_of(name) for name in self.names], dtype=np.float64),
            decode_s=figures.tables.decode_s_KB,
            decode_slope=figures.tables.slope_s_K,
            running=np.array(
                [
                    (0, 0) if held is None else (held.first, held.end)
                    for held in map(running.layers.get, self.names)
                ],
                dtype=np.int64,
            ).reshape(len(self.names), 2),
        )

    def stages_of(self, placement: Placement) -> Stages | None:
        """The placement as stages, one component's nodes only; None where it is not aligned.

        Layers that no node holds are stages without nodes, and serve nothing.
        """
        held = {name: placement.layers[name] for name in self.names if name in placement.layers}
        ranges = sorted({(one.first, one.end) for one in held.values()})
        lengths: list[int] = []
        number_of: dict[int, int] = {}
        before = 0
        for first, end in [*ranges, (self._num_layers, self._num_layers)]:
            if first < before:
                return None
            if first > before:
                lengths.append(first - before)
            if end > first:
                number_of[first] = len(lengths)
                lengths.append(end - first)
            before = end
        if not held or len(lengths) > self._max_stages:
            return None
        return Stages(
            lengths=tuple(lengths),
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
        return self.annealed(stages, moves=0, hot=1.0, seed=0).score

    def annealed(
        self, start: Stages, *, moves: int, hot: float, seed: int, loading: Loading = FREE
    ) -> Searched:
        """The best found from `start`; the temperature falls to a hundredth of `hot`.

        A candidate worse by a share s is taken with probability exp(-s / temperature).
        """
        return self._searched(
            start, moves=moves, hot=hot, cold=hot / 100, seed=seed, loading=loading
        )

    def walked(
        self, start: Stages, *, moves: int, hot: float, seed: int, loading: Loading = FREE
    ) -> Stages:
        """The end of a walk at one temperature, better or worse than `start`."""
        return self._searched(
            start, moves=moves, hot=hot, cold=hot, seed=seed, loading=loading
        ).last

    def _searched(
        self, start: Stages, *, moves: int, hot: float, cold: float, seed: int, loading: Loading
    ) -> Searched:
        last, best = (_Buffers(start, num_layers=self._num_layers) for _ in range(2))
        schedule = Schedule(moves=moves, hot=hot, cold=cold, seed=seed).packed()
        score: float = _anneal_estimate(
            self._task, schedule, Packed.of(loading), last.packed, best.packed
        )
        if math.isnan(score):
            raise MemoryError("no memory for annealing stages")
        return Searched(score=score, best=best.stages(), last=last.stages())


class _Buffers:
    """Stages that the loop reads and writes."""

    def __init__(self, stages: Stages, *, num_layers: int) -> None:
        self._stage_of = np.array(stages.stage_of, dtype=np.int64)
        self._lengths = np.zeros(num_layers, dtype=np.int64)
        self._lengths[: len(stages.lengths)] = stages.lengths
        self.packed = Packed(
            count=len(stages.lengths), stage_of=self._stage_of, lengths=self._lengths
        )

    def stages(self) -> Stages:
        count = int(self.packed.value("count"))
        return Stages(
            lengths=tuple(self._lengths[:count].tolist()), stage_of=tuple(self._stage_of.tolist())
        )


_anneal_estimate = function("anneal_estimate", REAL, *[POINTER] * 5)
