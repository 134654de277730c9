"""A chain of stages given as every node's stage number, and its placement."""

import numpy as np

from planner.domain.placement import LayerRange, Placement
from planner.placers.flow_tables import FlowTables
from planner.placers.loops import IntegerArray


def ranks_of(tables: FlowTables, placement: Placement) -> list[int]:
    """Stage numbers by first layer held, then by the end; -1 for nodes that hold nothing."""
    held = [placement.layers.get(name) for name in tables.names]
    stages = sorted({(layers.first, layers.end) for layers in held if layers is not None})
    number_of = {stage: number for number, stage in enumerate(stages)}
    return [-1 if layers is None else number_of[layers.first, layers.end] for layers in held]


def placement_of_chain(tables: FlowTables, ranks: list[int]) -> Placement | None:
    """The chain's stages at the highest flow at which they hold the model; None if none do.

    Links count for nothing here. Layers beyond the model's come off the slowest stages. A stage
    that is left without layers makes room for another at the end of the model; where ends cost
    layers, the rest is laid again, and compared with the chain in which every stage keeps a layer.
    """
    found = _laid(tables, ranks)
    return None if found is None else found[1]


def _laid(tables: FlowTables, ranks: list[int]) -> tuple[int, Placement] | None:
    """The placement, and the flow that every stage carries, in the tables' units."""
    speeds_NJ = _speeds_in_stages(tables, ranks)
    sums_SJ = _stage_sums(speeds_NJ, ranks)
    ways: list[tuple[int, Placement]] = []
    for least in (1, 0) if tables.ends_cost_layers else (0,):
        found = _longest_lengths(tables, sums_SJ, least=least)
        if found is None:
            continue
        flow, lengths = found
        _shorten(lengths, sums_SJ, by=int(lengths.sum()) - tables.num_layers, least=least)
        used = [stage for stage, length in enumerate(lengths) if length > 0]
        if tables.ends_cost_layers and len(used) < len(lengths):
            again = _laid(tables, [used.index(stage) if stage in used else -1 for stage in ranks])
            ways += [] if again is None else [again]
        else:
            ways.append((flow, _placed(tables, ranks, speeds_NJ, lengths)))
    return max(ways, key=lambda way: way[0], default=None)


def _shorten(lengths: IntegerArray, sums_SJ: IntegerArray, *, by: int, least: int) -> None:
    """Take layers off the slowest stages that hold more than `least`."""
    for _ in range(by):
        slowest = min(
            (stage for stage in range(len(lengths)) if lengths[stage] > least),
            key=lambda stage: int(sums_SJ[stage, lengths[stage]]),
        )
        lengths[slowest] -= 1


def _placed(
    tables: FlowTables, ranks: list[int], speeds_NJ: IntegerArray, lengths: IntegerArray
) -> Placement:
    firsts = np.concatenate(([0], np.cumsum(lengths)))
    layers: dict[str, LayerRange] = {}
    for index, stage in enumerate(ranks):
        if stage >= 0 and speeds_NJ[index, lengths[stage]] > 0:
            layers[tables.names[index]] = LayerRange(
                first=int(firsts[stage]), end=int(firsts[stage + 1])
            )
    return Placement(layers=layers)


def _speeds_in_stages(tables: FlowTables, ranks: list[int]) -> IntegerArray:
    """`speeds_NJ`, 0 for more layers than a node of the first or the last stage holds there."""
    if not tables.ends_cost_layers:
        return tables.speeds_NJ
    rank_N, last = np.array(ranks), max(ranks, default=-1)
    speeds = tables.speeds_NJ.copy()
    for rank in {0, last} - {-1}:
        there = rank_N == rank
        at_end = tables.speeds_at(is_first=rank == 0, is_last=rank == last)
        speeds[there] = at_end[there]
    return speeds


def _stage_sums(speeds_NJ: IntegerArray, ranks: list[int]) -> IntegerArray:
    sums = np.zeros((max(ranks, default=-1) + 1, speeds_NJ.shape[1]), dtype=np.int64)
    placed = np.array(ranks)
    np.add.at(sums, placed[placed >= 0], speeds_NJ[placed >= 0])
    return sums


def _longest_lengths(
    tables: FlowTables, sums_SJ: IntegerArray, *, least: int
) -> tuple[int, IntegerArray] | None:
    """The highest flow at which the stages hold the model, each at least `least` layers, and their
    lengths there; None if there is none.

    Only the sums themselves are flows at which a length changes, so these are bisected.
    """
    if least * len(sums_SJ) > tables.num_layers:
        return None
    flows = np.unique(sums_SJ[sums_SJ > 0])
    low, high = -1, len(flows)  # at flows[low] the stages hold the model, at flows[high] they don't
    while high - low > 1:
        middle = (low + high) // 2
        lengths = _lengths_at(sums_SJ, int(flows[middle]))
        if lengths.sum() >= tables.num_layers and lengths.min() >= least:
            low = middle
        else:
            high = middle
    return None if low < 0 else (int(flows[low]), _lengths_at(sums_SJ, int(flows[low])))


def _lengths_at(sums_SJ: IntegerArray, flow: int) -> IntegerArray:
    """The most layers with which each stage's sum reaches the flow; 0 if none."""
    longest = sums_SJ.shape[1] - 1
    reaches = sums_SJ[:, :0:-1] >= flow
    lengths: IntegerArray = np.where(reaches.any(axis=1), longest - reaches.argmax(axis=1), 0)
    return lengths
