"""Annealing of stages on the estimate: the reference of `stage_search.c`, to the last bit.

A candidate is a sequence of stages: how many layers each holds, and which nodes (IDLE: none). All
nodes of a stage are linked to all of the next, with the shares that their speeds give them. Moves:
layers to a neighbour (a stage left without layers joins it) or to any stage, a node to another
stage or to none, two nodes or two stages exchanged, a stage split, a node made a stage of its own.
"""

from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise

import numpy as np

from planner.chance import MINUS_LOGARITHMS, first_random, next_random
from planner.estimate.compiled.library import library
from planner.estimate.fixed_point import sustained
from planner.estimate.load import OUTSIDE, Load, Tables
from planner.estimate.model import Model
from planner.estimate.shared import Numbers, Reals, SharedLinks

IDLE = -1


class Aim(IntEnum):
    """What is to be large: decode tokens/s, these per price, or few nodes that meet a demand."""

    THROUGHPUT = 0
    PER_PRICE = 1
    FEWEST_NODES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchTask:
    """N nodes; columns j are layers held, 0 .. J - 1. Index N of the links is the coordinator.

    E are the ends of the model that a stage has (`planner.capacity.LayerLimits`): 0 none, 1 the
    first layer, 2 the last, 3 both. `rooms_ENJ` in requests, `speeds_NJ` in tokens/s, `bandwidth` 0
    where there is no link.
    """

    model: Model
    tables: Tables
    num_layers: int
    max_stages: int
    aim: Aim
    demand_tokens_per_s: float
    limits_NE: Numbers
    table_N: Numbers
    step_s_N: Reals
    speeds_NJ: Reals
    rooms_ENJ: Reals
    limits_NJ: Reals
    bandwidth: Reals
    latency: Reals
    shared: SharedLinks
    price_N: Reals


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """Layers of each stage in order, and the stage of every node."""

    lengths: tuple[int, ...]
    stage_of: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cooling:
    """`moves` moves; a candidate worse by a share s is taken with probability exp(-s / t).

    t falls from `hot` to `cold`.
    """

    moves: int
    hot: float
    cold: float
    seed: int

    @property
    def factor(self) -> float:
        return float((self.cold / self.hot) ** (1.0 / max(1, self.moves)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """The best stages and their score, and where the search ended."""

    score: float
    best: Stages
    last: Stages


def anneal(task: SearchTask, start: Stages, cooling: Cooling) -> Searched:
    """Anneal from `start`, compiled where that is possible."""
    if library() is None:
        return anneal_in_python(task, start, cooling)
    return _anneal_compiled(task, start, cooling)


def score_of(task: SearchTask, stages: Stages) -> float:
    """How good the stages are; 0 for stages that are empty, too long, not linked, of no speed."""
    members = [
        [node for node, stage in enumerate(stages.stage_of) if stage == number]
        for number in range(len(stages.lengths))
    ]
    order, shares, price = [], [], 0.0
    for number, (nodes, held) in enumerate(zip(members, stages.lengths, strict=True)):
        at = _ends_of(number, len(members))
        if any(held > task.limits_NE[node, at] for node in nodes):
            return 0.0
        speeds = [float(task.speeds_NJ[node, held]) for node in nodes]
        speed = 0.0
        for node, one in zip(nodes, speeds, strict=True):
            speed += one
            price += float(task.price_N[node])
        if not speed > 0:
            return 0.0
        order += nodes
        shares += [one / speed for one in speeds]
    load = _load(task, stages, members, order, shares)
    if load is None:
        return 0.0
    rate = sustained(task.model, load, task.tables).decode_tokens_per_s
    if task.aim == Aim.PER_PRICE:
        return rate / price
    if task.aim == Aim.FEWEST_NODES:
        if rate < task.demand_tokens_per_s:
            return rate / task.demand_tokens_per_s
        return 1.0 + (len(task.limits_NE) - len(order) + 1)
    return rate


def anneal_in_python(task: SearchTask, start: Stages, cooling: Cooling) -> Searched:
    randoms = _Randoms(cooling.seed)
    current, score = start, score_of(task, start)
    best, best_score = current, score
    temperature = cooling.hot
    for _ in range(cooling.moves):
        patience = temperature
        temperature *= cooling.factor
        tried = _moved(task, current, randoms)
        if tried is None:
            continue
        tried_score = score_of(task, tried)
        if not tried_score > 0:
            continue
        if tried_score < score:
            patience *= float(MINUS_LOGARITHMS[randoms.draw(len(MINUS_LOGARITHMS))])
            if score - tried_score > patience * score:
                continue
        current, score = tried, tried_score
        if score > best_score:
            best, best_score = current, score
    return Searched(score=best_score, best=best, last=current)


class _Randoms:
    def __init__(self, seed: int) -> None:
        self._state = first_random(seed)

    def draw(self, choices: int) -> int:
        self._state = next_random(self._state)
        return self._state % choices


def _load(
    task: SearchTask,
    stages: Stages,
    members: list[list[int]],
    order: list[int],
    shares: list[float],
) -> Load | None:
    """None where a link is missing."""
    place = {node: position for position, node in enumerate(order)}
    outside = len(task.limits_NE)
    sides = [[outside], *members, [outside]]
    ends = [(tail, head) for before, after in pairwise(sides) for tail in before for head in after]
    rows, columns = [tail for tail, _ in ends], [head for _, head in ends]
    bandwidth = task.bandwidth[rows, columns]
    if not (bandwidth > 0).all():
        return None
    stage_N = np.array([stages.stage_of[node] for node in order], dtype=np.int64)
    held = np.array(stages.lengths, dtype=np.int64)[stage_N]
    ends_N = (stage_N == 0) + 2 * (stage_N == len(members) - 1)
    share_of = {node: share for node, share in zip(order, shares, strict=True)} | {outside: 1.0}
    share_E = [share_of[tail] * share_of[head] for tail, head in ends]
    sizes = [
        0.0 if outside in pair else share * task.model.bytes_per_output
        for pair, share in zip(ends, share_E, strict=True)
    ]
    most, crowding = task.shared.crowding(rows, columns, sizes)
    return Load(
        group_N=stage_N,
        table_N=task.table_N[order],
        share_N=np.array(shares),
        layers_N=held.astype(np.float64),
        step_s_N=task.step_s_N[order],
        room_N=task.rooms_ENJ[ends_N, order, held],
        decode_limit_N=task.limits_NJ[order, held],
        tail_E=np.array([place.get(tail, OUTSIDE) for tail, _ in ends], dtype=np.int64),
        head_E=np.array([place.get(head, OUTSIDE) for _, head in ends], dtype=np.int64),
        share_E=np.array(share_E),
        bandwidth_E=np.minimum(bandwidth, most),
        latency_E=task.latency[rows, columns],
        crowding_E=np.array(crowding),
        return_s=_return_s(task, members, share_of),
    )


def _ends_of(number: int, count: int) -> int:
    """E of a stage, of `count` stages."""
    return (number == 0) + 2 * (number == count - 1)


def _return_s(task: SearchTask, members: list[list[int]], share_of: dict[int, float]) -> float:
    """From the last stage to the first; a single stage is both."""
    outside, total = len(task.limits_NE), 0.0
    is_straight = task.model.straight_back > 0
    if is_straight and len(members) == 1:
        return 0.0
    for tail in members[-1]:
        for head in members[0]:
            if is_straight and task.bandwidth[tail, head] > 0:
                latency = float(task.latency[tail, head])
            else:
                latency = float(task.latency[tail, outside] + task.latency[outside, head])
            total += share_of[tail] * share_of[head] * latency
    return total


def _moved(task: SearchTask, stages: Stages, randoms: _Randoms) -> Stages | None:
    """A neighbour; None where the move drawn makes no sense."""
    draw = randoms.draw
    stage_of, lengths = list(stages.stage_of), list(stages.lengths)
    nodes, count = len(stage_of), len(lengths)
    kind = draw(10)
    if kind < 2:
        if count < 2:
            return None
        left, layers, backwards = draw(count - 1), 1 + draw(2), draw(2)
        giver, taker = (left + 1, left) if backwards else (left, left + 1)
        if lengths[giver] > layers:
            lengths[giver] -= layers
            lengths[taker] += layers
        else:
            lengths[taker] += lengths[giver]
            stage_of = [taker if stage == giver else stage for stage in stage_of]
            stage_of = [stage - (stage > giver) for stage in stage_of]
            del lengths[giver]
    elif kind < 4:
        node, stage = draw(nodes), draw(count + 1)
        stage = IDLE if stage == count else stage
        if stage_of[node] == stage:
            return None
        stage_of[node] = stage
    elif kind < 6:
        node, other = draw(nodes), draw(nodes)
        if stage_of[node] == stage_of[other]:
            return None
        stage_of[node], stage_of[other] = stage_of[other], stage_of[node]
    elif kind == 6:
        first, second = draw(count), draw(count)
        if first == second:
            return None
        lengths[first], lengths[second] = lengths[second], lengths[first]
        exchanged = {first: second, second: first}
        stage_of = [exchanged.get(stage, stage) for stage in stage_of]
    elif kind == 7:
        stage = draw(count)
        if lengths[stage] < 2 or count >= task.max_stages:
            return None
        layers = 1 + draw(lengths[stage] - 1)
        lengths[stage] -= layers
        stage_of = [one + (one >= stage + 1) for one in stage_of]
        lengths.insert(stage + 1, layers)
        stage_of = [stage + 1 if one == stage and draw(2) else one for one in stage_of]
    elif kind == 8:
        node, fresh, giver, layers = draw(nodes), draw(count + 1), draw(count), 1 + draw(4)
        if count >= task.max_stages or lengths[giver] <= layers:
            return None
        lengths[giver] -= layers
        stage_of = [one + (one >= fresh) for one in stage_of]
        lengths.insert(fresh, layers)
        stage_of[node] = fresh
    else:
        giver, taker, layers = draw(count), draw(count), 1 + draw(3)
        if giver == taker or lengths[giver] <= layers:
            return None
        lengths[giver] -= layers
        lengths[taker] += layers
    return Stages(lengths=tuple(lengths), stage_of=tuple(stage_of))


def _anneal_compiled(task: SearchTask, start: Stages, cooling: Cooling) -> Searched:
    loops = library()
    if loops is None:
        raise RuntimeError("the loops are not compiled here; use anneal_in_python")
    stage_of = np.array(start.stage_of, dtype=np.int64)
    lengths = np.zeros(task.num_layers, dtype=np.int64)
    lengths[: len(start.lengths)] = start.lengths
    count = np.array([len(start.lengths)], dtype=np.int64)
    best_stage_of, best_lengths, best_count = stage_of.copy(), lengths.copy(), count.copy()
    numbers = task.model.as_array()
    inputs = (
        task.limits_NE,
        task.table_N,
        task.step_s_N,
        task.speeds_NJ,
        task.rooms_ENJ,
        task.limits_NJ,
        task.bandwidth,
        task.latency,
        task.price_N,
        task.shared.bandwidth_S,
        task.shared.is_card_S,
        task.shared.member_SM,
        task.shared.leaving_start_M1,
        task.shared.leaving,
        task.shared.reaching_start_M1,
        task.shared.reaching,
        task.tables.decode_s_KB,
        task.tables.slope_s_K,
        MINUS_LOGARITHMS,
    )
    states = (stage_of, lengths, count, best_stage_of, best_lengths, best_count)
    score: float = loops.anneal_estimate(
        numbers.ctypes.data,
        len(stage_of),
        task.num_layers,
        task.max_stages,
        task.speeds_NJ.shape[1],
        task.tables.decode_s_KB.shape[1],
        int(task.aim),
        task.demand_tokens_per_s,
        *(values.ctypes.data for values in inputs),
        len(task.shared.bandwidth_S),
        len(MINUS_LOGARITHMS),
        cooling.moves,
        cooling.hot,
        cooling.factor,
        first_random(cooling.seed),
        *(values.ctypes.data for values in states),
    )
    if score < 0:
        raise MemoryError("no memory for annealing stages")
    return Searched(
        score=score,
        best=_stages(best_stage_of, best_lengths, best_count),
        last=_stages(stage_of, lengths, count),
    )


def _stages(stage_of: Numbers, lengths: Numbers, count: Numbers) -> Stages:
    return Stages(
        lengths=tuple(lengths[: int(count[0])].tolist()), stage_of=tuple(stage_of.tolist())
    )
