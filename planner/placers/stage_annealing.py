"""Annealing on the sequence of stages at a fixed flow: for clusters whose links are slow.

A state is an order of node sets; each is as long as its nodes carry the target flow with. What the
state lacks is layers, and flow at the crossings between consecutive stages. It needs no partial
inference. Pinned nodes take no part.
"""

import random
import time
from collections.abc import Callable

import numpy as np

from planner.domain.placement import Placement
from planner.domain.problem import Problem
from planner.placers.annealing import (
    AnnealingOptions,
    TimeLeft,
    Try,
    anneal_in_chunks,
    search_by_annealing,
)
from planner.placers.base import CancelToken, Progress, SearchOptions, SearchResult
from planner.placers.compiled.loops import anneal_stages
from planner.placers.compiled.tasks import Annealed, IntegerArray, Schedule, StageTask
from planner.placers.flow_tables import FlowTables
from planner.placers.stage_chain import placement_of_chain, ranks_of

NAME = "stage-annealing"
# In missing layers. Measured on generated clusters of 100 nodes in 3 to 20 regions: an impassable
# crossing that costs 10 layers leads to chains sooner than one that costs 3 or 20.
_CROSSING_WEIGHT = 10.0
_HOT, _COLD = 1.0, 0.05
_NUM_NEIGHBOURS = 8


class StageAnnealingPlacer:
    """Places aligned stages so that every crossing between them passes the flow."""

    def __init__(
        self,
        *,
        annealing: AnnealingOptions | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._annealing = annealing or AnnealingOptions()
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
        """The best placement found; never worse than `start`, which half of the tries begin at."""
        return search_by_annealing(
            problem,
            _try_stages,
            placer=NAME,
            annealing=self._annealing,
            options=options,
            start=start,
            progress=progress,
            cancel=cancel,
            clock=self._clock,
        )


def _try_stages(tables: FlowTables, aim: Try, *, time_left: TimeLeft) -> Placement | None:
    task = StageTask(
        num_layers=tables.num_layers,
        target=tables.target(aim.target_tokens_per_s),
        max_stages=aim.max_stages,
        speeds_NJ=tables.speeds_NJ,
        links=tables.links,
        neighbours_NK=_neighbours(tables, seed=aim.seed),
        weight=_CROSSING_WEIGHT,
    )

    def loop(ranks: list[int], schedule: Schedule) -> Annealed[float, list[int]]:
        return anneal_stages(task, ranks=ranks, schedule=schedule)

    annealed = anneal_in_chunks(
        loop,
        start=_start_ranks(tables, aim),
        schedule=Schedule(moves=aim.moves, hot=_HOT, cold=_COLD, seed=aim.seed),
        time_left=time_left,
    )
    return placement_of_chain(tables, annealed.best)


def _start_ranks(tables: FlowTables, aim: Try) -> list[int]:
    """The best stages so far, or on every other try as many stages of nodes drawn by chance."""
    n = len(tables.names)
    ranks = ranks_of(tables, aim.best) if aim.best is not None else [-1] * n
    num_stages = max(ranks) + 1
    if num_stages == 0:
        num_stages = min(n, -(-tables.num_layers // max(1, int(tables.limits_N.max()))))
    elif aim.number % 2 == 0:
        # Idle nodes join a stage by chance: the loop opens a stage only beside a node of another.
        chance = random.Random(aim.seed)  # noqa: S311 - a search, not a secret
        return [rank if rank >= 0 else chance.randrange(num_stages) for rank in ranks]
    order = np.random.default_rng(aim.seed).permutation(n)
    return [int(place) * num_stages // n for place in order]


def _neighbours(tables: FlowTables, *, seed: int) -> IntegerArray:
    """For every node some of its region, drawn by chance; none where there is one region only."""
    n = len(tables.names)
    if tables.region_N.max(initial=0) == 0:
        return np.zeros((n, 0), dtype=np.int64)
    chance = np.random.default_rng(seed)
    rows = [
        chance.choice(np.flatnonzero(tables.region_N == region), _NUM_NEIGHBOURS)
        for region in tables.region_N
    ]
    return np.array(rows, dtype=np.int64)
