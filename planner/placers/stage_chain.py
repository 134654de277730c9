"""A chain of stages given as every node's stage number, and the placement it stands for."""

import numpy as np

from planner.domain.placement import LayerRange, Placement
from planner.placers.compiled.tasks import IntegerArray
from planner.placers.flow_tables import FlowTables


def ranks_of(tables: FlowTables, placement: Placement) -> list[int]:
    """Stage numbers by first layer held, then by the end; -1 for nodes that hold nothing."""
    held = [placement.layers.get(name) for name in tables.names]
    stages = sorted({(layers.first, layers.end) for layers in held if layers is not None})
    number_of = {stage: number for number, stage in enumerate(stages)}
    return [-1 if layers is None else number_of[layers.first, layers.end] for layers in held]


def placement_of_chain(tables: FlowTables, ranks: list[int]) -> Placement | None:
    """The chain's stages at the highest flow at which they hold the model; None if none do.

    Links count for nothing here. Layers beyond the model's come off the slowest stages.
    """
    sums_SJ = _stage_sums(tables, ranks)
    lengths = _longest_lengths(tables, sums_SJ)
    if lengths is None:
        return None
    stages = range(len(lengths))
    for _ in range(int(lengths.sum()) - tables.num_layers):
        slowest = min(
            (stage for stage in stages if lengths[stage] > 0),
            key=lambda stage: int(sums_SJ[stage, lengths[stage]]),
        )
        lengths[slowest] -= 1
    firsts = np.concatenate(([0], np.cumsum(lengths)))
    layers: dict[str, LayerRange] = {}
    for index, stage in enumerate(ranks):
        if stage >= 0 and tables.speeds_NJ[index, lengths[stage]] > 0:
            layers[tables.names[index]] = LayerRange(
                first=int(firsts[stage]), end=int(firsts[stage + 1])
            )
    return Placement(layers=layers)


def _stage_sums(tables: FlowTables, ranks: list[int]) -> IntegerArray:
    sums = np.zeros((max(ranks, default=-1) + 1, tables.speeds_NJ.shape[1]), dtype=np.int64)
    placed = np.array(ranks)
    np.add.at(sums, placed[placed >= 0], tables.speeds_NJ[placed >= 0])
    return sums


def _longest_lengths(tables: FlowTables, sums_SJ: IntegerArray) -> IntegerArray | None:
    """The stages' lengths at the highest flow at which they add up to the model's layers.

    Only the sums themselves are flows at which a length changes, so these are bisected.
    """
    flows = np.unique(sums_SJ[sums_SJ > 0])
    low, high = -1, len(flows)  # at flows[low] the stages hold the model, at flows[high] they don't
    while high - low > 1:
        middle = (low + high) // 2
        if _lengths_at(sums_SJ, int(flows[middle])).sum() >= tables.num_layers:
            low = middle
        else:
            high = middle
    return None if low < 0 else _lengths_at(sums_SJ, int(flows[low]))


def _lengths_at(sums_SJ: IntegerArray, flow: int) -> IntegerArray:
    """The most layers with which each stage's sum reaches the flow; 0 if none."""
    longest = sums_SJ.shape[1] - 1
    reaches = sums_SJ[:, :0:-1] >= flow
    lengths: IntegerArray = np.where(reaches.any(axis=1), longest - reaches.argmax(axis=1), 0)
    return lengths
