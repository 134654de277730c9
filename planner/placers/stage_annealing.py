"""Annealing on the sequence of stages at a fixed flow: for clusters whose links are slow.

A state is an order of node sets; the length of each is what its nodes can hold at the target flow.
The cost is missing layers, and missing flow between consecutive stages. No partial inference is
needed. Pinned nodes are not moved; stages are placed around them.
"""

import random
from dataclasses import replace

import numpy as np

from planner.chance import Schedule
from planner.domain.placement import Placement
from planner.placers.annealing import ALONE, Effort, Try, anneal_in_chunks, search_by_annealing
from planner.placers.base import StopReason
from planner.placers.board import Board
from planner.placers.flow_tables import FlowTables
from planner.placers.loops import (
    NO_INTEGERS,
    AnnealedStages,
    IntegerArray,
    StageTask,
    anneal_stages,
)
from planner.placers.stage_chain import placement_of_chain, ranks_of
from planner.placers.stop import Stop
from planner.tuning.flow import StageAnnealingTuning as tuned

NAME = "stage-annealing"


def search_stage_annealing(board: Board, seed: int, *, effort: Effort = ALONE) -> StopReason:
    """Place aligned stages so that every crossing between them passes the flow.

    Half of the tries begin at the best so far.
    """
    return search_by_annealing(board, _StageAnnealer(), seed=seed, by=NAME, effort=effort)


class _StageAnnealer:
    def moves_per_s(self, tables: FlowTables) -> float:
        width = len(tables.names) / (tables.num_layers / tuned.LAYERS_PER_STAGE)
        return 1.0 / (tuned.S_PER_MOVE + tuned.S_PER_PAIR * width * width)

    def attempt(
        self, tables: FlowTables, aim: Try, *, chunk_moves: int, stop: Stop
    ) -> Placement | None:
        """One try from the best stages so far; every other try from random stages.

        A try beside pins is measured by laying its stages around the pins.
        """
        if aim.beside_pins:
            # As if the model had only the layers that no pin holds.
            tables = replace(tables, num_layers=tables.open_layers or tables.num_layers)
        task = StageTask(
            num_layers=tables.num_layers,
            target=tables.target(aim.target_tokens_per_s),
            max_stages=aim.max_stages,
            speeds_NJ=tables.speeds_NJ,
            links=tables.links,
            neighbours_NK=_neighbours(tables, seed=aim.seed),
            weight=tuned.CROSSING_WEIGHT,
            limits_NE=tables.limits_NE if tables.ends_cost_layers else NO_INTEGERS,
        )

        def loop(ranks: list[int], schedule: Schedule) -> AnnealedStages:
            return anneal_stages(task, ranks=ranks, schedule=schedule)

        known = ranks_of(tables, aim.best) if aim.best is not None else []
        goes_on = max(known, default=-1) >= 0 and aim.number % 2 == 0
        annealed = anneal_in_chunks(
            loop,
            start=_joined(known, seed=aim.seed) if goes_on else _drawn(tables, seed=aim.seed),
            schedule=Schedule(
                moves=aim.moves,
                hot=tuned.WARM if goes_on else tuned.HOT,
                cold=tuned.COLD,
                seed=aim.seed,
            ),
            chunk_moves=chunk_moves,
            stop=stop,
        )
        return placement_of_chain(tables, annealed.best)


def _joined(ranks: list[int], *, seed: int) -> list[int]:
    """Idle nodes join a stage by chance: the loop opens a stage only beside a node of another."""
    chance = random.Random(seed)  # noqa: S311 - a search, not a secret
    num_stages = max(ranks) + 1
    return [rank if rank >= 0 else chance.randrange(num_stages) for rank in ranks]


def _drawn(tables: FlowTables, *, seed: int) -> list[int]:
    """Region after region, in an order drawn by chance; each region's nodes in a drawn order too.

    So most crossings are inside a region from the start. Where shared bandwidth lets little
    through, all regions in every stage instead: flow may then stay in each.
    """
    n = len(tables.names)
    chance = np.random.default_rng(seed)
    place_of_region = chance.permutation(int(tables.region_N.max(initial=0)) + 1)
    nodes = chance.permutation(n)
    if tables.links_sharing <= tuned.LINKS_OF_A_CROSSING:
        nodes = nodes[np.argsort(place_of_region[tables.region_N[nodes]], kind="stable")]
    num_stages = max(1, min(n, round(tables.num_layers / tuned.LAYERS_PER_STAGE)))
    ranks = np.zeros(n, dtype=np.int64)
    ranks[nodes] = np.arange(n) * num_stages // n
    return [int(rank) for rank in ranks]


def _neighbours(tables: FlowTables, *, seed: int) -> IntegerArray:
    """For every node, random nodes of its region; none if there is only one region."""
    n = len(tables.names)
    if tables.region_N.max(initial=0) == 0:
        return np.zeros((n, 0), dtype=np.int64)
    chance = np.random.default_rng(seed)
    rows = [
        chance.choice(np.flatnonzero(tables.region_N == region), tuned.NUM_NEIGHBOURS)
        for region in tables.region_N
    ]
    return np.array(rows, dtype=np.int64)
