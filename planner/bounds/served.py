"""The bound on served tokens: no placement and routing serves more output tokens/s for long.

**What is charged.** Let all requests together get X output tokens/s. Requests that pass the same
nodes are a path p: X_p tokens/s, one each tau_p seconds. A node that holds j of the L layers and
passes v of the X on, its decodes b at a time,

* computes: `v ((1 - 1/O) t(b) / b + q) <= 1`. t(b) is the time of a step of b decodes, with the
  weights' reads and the copies of tokens that arrived; q is its share of a prompt, at the best size
  of chunk, per output token. The first token of the O of an answer comes of the prompt;
* has v <= X, and of each path at most X_p, for a request visits it at most once;
* has room: the requests of a path that passes it are in flight for tau_p per token, so
  `sum X_p tau_p` over its paths of them are there (Little's law), at most the policy's share of its
  KV room over what one reserves, and one more: what is reserved grows with answers after the last
  request was let in;
* keeps b decodes busy, so each of its v tokens stays w = b / v seconds, then the shortest link's
  latency.

Over the nodes of a path, `sum j = L`, as every token passes every layer, and
`sum (w + link) <= tau_p`. A node that runs fewer of its layers for some tokens counts as one that
passes fewer tokens on, with the KV room of the roomiest that holds at least j. Where no group of
well linked nodes holds the model, a token leaves each group that it visits by a slow link.

**Program.** Paths are sorted into classes by tau. Of a class c, with tau in [low, high], v_c of a
node's tokens come by its paths, z_c of its tokens visit a group, and X_c are all:

    maximise sum X_c                    where X_c = sum over nodes of v_c j / L
    v_c <= z_c <= X_c                   each node, each group
    sum over classes of v_c low <= room each node
    sum over nodes of v_c (w + link) + sum over groups of z_c slow <= X_c high

A node's v and w lie between those of two sizes of batch; v, never above the bound known so far, is
divided among classes. So columns are (class, kind, j, b), each a share of a node, rows of nodes
(shares are at most 1), of room and of v_c are sums over alike nodes, and all but the first are
linear. Columns are found one by one. The prices of its rows, whatever they are, prove a bound: its
worth at the prices that are repriced exactly. Classes in use are divided until they are narrow.

Requests of one node may have different tau, for example behind it a fast node or a slow one. A
program with one tau for all of them was below what such a placement serves.

**What is assumed.** A decode waits for prompts as long as its node spends on them: b / v is the
time of its step over the share of time that is left to decodes. Estimates say so (`fixed_point`,
with `cycle_weight` at least); in simulations it holds on average, not for every schedule. All
decodes of a node stay equally long for a layer, whatever their path. Runs must also be long: what a
short window lacks of prompts or gains in short answers, it serves more.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from planner.bounds.link_groups import LinkTable, link_groups
from planner.bounds.node_kinds import NO_RULES, NodeKind, node_kinds
from planner.bounds.packing_program import LinearProgramFailed, PackingProgram
from planner.capacity import layer_limits, most_held
from planner.domain.cluster import COORDINATOR
from planner.domain.layer_times import LayerTimes
from planner.domain.limits import MAX_TOKENS_PER_S
from planner.domain.problem import Problem
from planner.domain.profile import ComputeProfile
from planner.domain.rules import PlacementRules
from planner.domain.serving_policy import ServingPolicy
from planner.estimate.estimate import Estimator
from planner.estimate.load import TABLE_SIZE
from planner.link_matrix import links_between
from planner.timing import hop_s, layer_times_of
from planner.tuning.served import ServedBoundTuning as tuned

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

# Decodes at a time; below 1 for nodes that have none now and then.
_EVERY_BATCH = np.r_[0.25, 0.5, np.arange(1.0, TABLE_SIZE)]
_BATCHES = np.unique(np.r_[0.25, 0.5, 1.0, np.round(np.geomspace(2, TABLE_SIZE - 1, 40))])
_KNOTS = np.searchsorted(_EVERY_BATCH, _BATCHES)
_BATCHES = np.r_[_BATCHES, TABLE_SIZE - 1]  # the last: any that are larger
_LEAST_DECODES = 1e-6  # per token of output; answers of one token have none
_FAR, _LEAST_S = 1e3, 1e-12
_ROUNDING = 1 + 1e-9


def served_bounds_tokens_per_s(
    problem: Problem,
    *,
    policy: ServingPolicy,
    rules: PlacementRules = NO_RULES,
    should_stop: Callable[[], bool] = lambda: False,
) -> Iterator[float]:
    """Ever tighter bounds on decode tokens/s; each is valid when it is yielded."""
    ways = _ways(problem, policy=policy, rules=rules)
    if ways is None:
        yield 0.0
        return
    program, bound, idle = _Program(ways), MAX_TOKENS_PER_S, 0
    while idle < tuned.IDLE and not should_stop():
        try:
            found = program.bound_tokens_per_s(known_bound=bound, should_stop=should_stop)
        except LinearProgramFailed:
            return  # numbers too far apart for the solver; those so far are proven
        idle = 0 if found < bound * (1 - tuned.LEAST_GAIN) else idle + 1
        if found < bound:
            bound = found
            yield bound
        if not program.divide_classes():
            return


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ways:
    """Options of nodes: way w is to hold `layers_W` layers as a node of kind `kind_W`.

    `tokens_per_s_WB` with `_BATCHES` decodes at a time, never less than between two of them.
    """

    num_layers: int
    count_K: Floats
    group_K: Integers
    kind_W: Integers
    layers_W: Floats
    room_W: Floats  # in requests
    link_s_W: Floats
    tokens_per_s_WB: Floats
    slots: float  # requests that a decode which is served counts for
    slow_s_G: Floats  # of a group's shortest link to another, beyond the shortest of all


class _Points(NamedTuple):
    """By way and batch: tokens/s, those of all layers, and decodes and links in flight."""

    tokens_WB: Floats
    value_WB: Floats
    use_WB: Floats


class _Program:
    """The program of the module's docstring.

    Its rows are kinds of nodes, rooms of ways, and of each class its time, kinds and groups.
    """

    def __init__(self, ways: _Ways) -> None:
        self._ways = ways
        points = self._points(MAX_TOKENS_PER_S)
        serves_WB = points.value_WB > 0
        shortest_s = float((points.use_WB[serves_WB] / points.value_WB[serves_WB]).min())
        self._low_C = shortest_s * 2.0 ** np.arange(tuned.SECONDS)
        self._high_C = np.r_[self._low_C[1:], math.inf]
        # (class, way, batch) of the last solution's columns; at first nodes that pass nothing on.
        self._columns = [(0, way, 0) for way in range(len(ways.kind_W))]

    def bound_tokens_per_s(self, *, known_bound: float, should_stop: Callable[[], bool]) -> float:
        """Solve it, with no node above `known_bound`, for what its prices prove."""
        ways, points = self._ways, self._points(known_bound)
        kinds, program = len(ways.count_K), self._with_visits()
        first_W = np.flatnonzero(np.r_[True, np.diff(ways.kind_W) > 0])
        first_column, columns = program.num_columns, list[tuple[int, int, int]]()
        fresh, least = self._columns, math.inf
        for _ in range(tuned.MOST_ROUNDS):
            for column in fresh:
                use, value = self._column(points, *column)
                if program.add_unknown(column, use, value=value):
                    columns.append(column)
            solution = program.solve()
            gain_CWB = self._gains(points, solution.row_prices)
            gain_CW = gain_CWB.max(axis=2)
            best_CK = np.maximum.reduceat(gain_CW, first_W, axis=1)
            least = min(least, float(np.maximum(best_CK.max(axis=0), 0.0) @ ways.count_K))
            lack_CK = best_CK - solution.row_prices[:kinds]
            lacking = np.argwhere(lack_CK > tuned.PRECISION * np.abs(best_CK).max())
            is_solved = least <= solution.value * (1 + tuned.PRECISION) or not len(lacking)
            if is_solved or should_stop():
                break
            fresh = []
            for class_, kind in lacking.tolist():
                of_kind = np.flatnonzero(ways.kind_W == kind)
                way = int(of_kind[gain_CW[class_, of_kind].argmax()])
                fresh.append((class_, way, int(gain_CWB[class_, way].argmax())))
        is_used = solution.amounts[first_column:] > 0
        self._columns = [column for column, used in zip(columns, is_used, strict=True) if used]
        return least * _ROUNDING

    def divide_classes(self) -> bool:
        """Divide those in use and their columns; False where these are narrow or endless."""
        low_C, high_C = self._low_C, self._high_C
        is_used = np.isin(np.arange(len(low_C)), [class_ for class_, _, _ in self._columns])
        is_wide = (high_C < math.inf) & (high_C > low_C * tuned.LEAST_RATIO)
        parts_C = np.where(is_used & is_wide, tuned.PARTS, 1)
        first_C = np.cumsum(parts_C) - parts_C
        is_divided = parts_C > 1
        ratio_C = np.ones(len(low_C))
        ratio_C[is_divided] = (high_C[is_divided] / low_C[is_divided]) ** (1 / tuned.PARTS)
        low, ratio = np.repeat(low_C, parts_C), np.repeat(ratio_C, parts_C)
        low = low * ratio ** (np.arange(len(low)) - np.repeat(first_C, parts_C))
        self._columns = [
            (int(first_C[class_]) + part, way, batch)
            for class_, way, batch in self._columns
            for part in range(parts_C[class_])
        ]
        self._low_C, self._high_C = low, np.r_[low[1:], math.inf]
        return len(low) > len(low_C)

    def _points(self, most: float) -> _Points:
        """No node passes more than `most`, or has more decodes than requests."""
        ways, decodes_B = self._ways, np.r_[0.0, _BATCHES]
        tokens_WB, busy_WB = np.empty((2, len(ways.kind_W), len(decodes_B)))
        for way, known_B in enumerate(np.pad(ways.tokens_per_s_WB, ((0, 0), (1, 0)))):
            fitting = np.interp(ways.room_W[way] / ways.slots, decodes_B, known_B)
            tokens_WB[way] = np.minimum(known_B, min(most, fitting))
            busy_WB[way] = np.interp(tokens_WB[way], known_B, decodes_B)
        return _Points(
            tokens_WB=tokens_WB,
            value_WB=tokens_WB * (ways.layers_W / ways.num_layers)[:, None],
            use_WB=ways.slots * busy_WB + tokens_WB * ways.link_s_W[:, None],
        )

    def _with_visits(self) -> PackingProgram:
        """Its rows, and the columns of visits of groups."""
        ways = self._ways
        kinds, groups = len(ways.count_K), len(ways.slow_s_G)
        program = PackingProgram([*ways.count_K, *([0.0] * len(ways.kind_W))], is_primal=True)
        for high in self._high_C.tolist():
            own = program.num_rows
            program.add_rows([0.0] * (1 + kinds + groups))
            for group, slow_s in enumerate(ways.slow_s_G.tolist()):
                use = {own + 1 + kinds + group: 1.0, own: slow_s if high < math.inf else 0.0}
                for kind in np.flatnonzero(ways.group_K == group).tolist():
                    use[own + 1 + kind] = -float(ways.count_K[kind])
                program.add_column(use, value=0.0)
        return program

    def _column(
        self, points: _Points, class_: int, way: int, batch: int
    ) -> tuple[dict[int, float], float]:
        """Its use of rows, and its value."""
        ways, kind = self._ways, int(self._ways.kind_W[way])
        kinds, groups = len(ways.count_K), len(ways.slow_s_G)
        tokens, value = float(points.tokens_WB[way, batch]), float(points.value_WB[way, batch])
        low, high = float(self._low_C[class_]), float(self._high_C[class_])
        own = kinds + len(ways.kind_W) + class_ * (1 + kinds + groups)
        use = {kind: 1.0, kinds + way: tokens * low - float(ways.room_W[way])}
        if high < math.inf:
            use[own] = float(points.use_WB[way, batch]) - value * high
        use[own + 1 + kind] = tokens
        return use | dict.fromkeys(range(own + 1 + kinds, own + 1 + kinds + groups), -value), value

    def _gains(self, points: _Points, prices: Floats) -> Floats:
        """What a column is worth by class, way and batch, before the price of its node."""
        ways = self._ways
        kinds, count = len(ways.count_K), len(ways.kind_W)
        is_timed_C = self._high_C < math.inf
        own_CR = prices[kinds + count :].reshape(len(self._low_C), -1)
        time_C, once_CK = own_CR[:, 0] * is_timed_C, own_CR[:, 1 : 1 + kinds]
        # At least what visits of a group are worth, so that their columns gain nothing.
        in_group_KG = ways.group_K[:, None] == np.arange(len(ways.slow_s_G))
        visit_CG = (once_CK * ways.count_K) @ in_group_KG - time_C[:, None] * ways.slow_s_G
        worth_C = 1.0 + np.maximum(own_CR[:, 1 + kinds :], visit_CG).sum(axis=1)
        worth_C += time_C * np.where(is_timed_C, self._high_C, 0.0)
        room_W = prices[kinds : kinds + count]
        price_CW = once_CK[:, ways.kind_W] + self._low_C[:, None] * room_W
        gain_CWB: Floats = worth_C[:, None, None] * points.value_WB
        gain_CWB -= time_C[:, None, None] * points.use_WB
        gain_CWB -= price_CW[:, :, None] * points.tokens_WB
        return gain_CWB + (room_W * ways.room_W)[:, None]


def _ways(problem: Problem, *, policy: ServingPolicy, rules: PlacementRules) -> _Ways | None:
    """None where the nodes cannot hold the model, or no request."""
    estimator = Estimator(problem, policy=policy)
    figures, model = estimator.figures, estimator.model
    groups, link_s, slow_s = _links(problem)
    kinds = node_kinds(
        problem,
        rules=rules,
        groups={
            node.name: f"{groups[node.name]} {node.compute_profile}"
            for node in problem.cluster.nodes
        },
    )
    if sum(kind.count * max(kind.tokens_per_s) for kind in kinds) < problem.model.num_layers:
        return None
    decodes_per_output = max(1 - 1 / model.output_tokens, _LEAST_DECODES)
    rows = []
    for number, kind in enumerate(kinds):
        name = kind.names[0]
        profile, times = problem.profile_of(name), layer_times_of(problem, name)
        least_B = np.maximum(_EVERY_BATCH, times.least_decodes).astype(np.int64)
        decode_s_B = figures.tables.decode_s_KB[figures.table_of[name]][least_B]
        slope_s = float(figures.tables.slope_s_K[figures.table_of[name]])
        prompt_s = _prompt_s_per_token(times, policy.prompt_chunk_tokens)
        prompts_per_output = model.prompt_tokens / model.output_tokens
        chunks = 1 + model.prompt_tokens / (policy.prompt_chunk_tokens or math.inf)
        for layers in kind.tokens_per_s:
            is_alone = layers == problem.model.num_layers
            # A token that comes back where it is needs no copy and no link.
            copy_s, away_s = (0.0, 0.0) if is_alone else (model.copy_s_per_token, link_s)
            # Where a step of both takes what is beside its layers once, prompts may cost nothing.
            shared_s = times.shared_s(has_head=False)
            prompts_s = (layers * prompt_s + model.copy_s_per_token) * prompts_per_output
            prompts_s -= shared_s * chunks / model.output_tokens
            step_s_B = layers * decode_s_B + _EVERY_BATCH * copy_s + policy.step_overhead_s
            least_s_B = decodes_per_output * np.maximum(step_s_B - shared_s, _LEAST_S)
            tokens_B = _EVERY_BATCH / np.maximum(
                decodes_per_output * step_s_B + _EVERY_BATCH * prompts_s, least_s_B
            )
            most_s = decodes_per_output * (layers * max(slope_s, 0.0) + copy_s)
            most = 1 / (most_s + max(prompts_s, _LEAST_S))
            row = _not_below(tokens_B, most, origin=1 / (decodes_per_output * step_s_B[0]))
            room = policy.kv_high_water * _room_tokens(profile, kind, layers)
            fits = room / estimator.lengths.reserved_tokens + 1.0 if room > 0 else 0.0
            rows.append((number, layers, fits, away_s, row))
    kind_W, layers_W, room_W, link_s_W, tokens_WB = zip(*rows, strict=True)
    if max(room_W) == 0:
        return None
    return _Ways(
        num_layers=problem.model.num_layers,
        count_K=np.array([float(kind.count) for kind in kinds]),
        group_K=np.array([list(slow_s).index(groups[kind.names[0]]) for kind in kinds]),
        kind_W=np.array(kind_W, dtype=np.int64),
        layers_W=np.array(layers_W, dtype=np.float64),
        room_W=np.array(room_W, dtype=np.float64),
        link_s_W=np.array(link_s_W, dtype=np.float64),
        tokens_per_s_WB=np.array(tokens_WB),
        slots=min(1.0, model.cycle_weight),
        slow_s_G=np.array(list(slow_s.values())),
    )


def _room_tokens(profile: ComputeProfile, kind: NodeKind, layers: int) -> float:
    """Of the roomiest node of the kind that holds as many layers, for requests that run these."""
    return max(
        profile.kv_room_token_layers(held, has_first=False, has_last=False) / layers
        for held in kind.tokens_per_s
        if held >= layers
    )


def _not_below(tokens_B: Floats, most: float, *, origin: float) -> Floats:
    """tokens/s at `_BATCHES` whose chords are nowhere below `tokens_B`, and rising.

    `tokens_B` are at `_EVERY_BATCH`, `most` at batches without end, and `origin` is the slope at 0.
    """
    rising = np.maximum.accumulate(tokens_B)
    knots = np.r_[rising[_KNOTS], max(most, rising[-1])]
    chord_B = np.interp(_EVERY_BATCH, _BATCHES[:-1], knots[:-1])
    cell_of = np.searchsorted(_BATCHES[:-1], _EVERY_BATCH, side="right") - 1
    excess = np.ones(len(knots) + 1)  # of every cell, the first of which begins at 0
    np.maximum.at(excess, cell_of + 1, rising / chord_B)
    excess[0] = origin * _BATCHES[0] / knots[0]
    knots *= np.maximum(excess[:-1], excess[1:])
    rising_knots: Floats = np.maximum.accumulate(knots) * (1 + 1e-12 * np.arange(len(knots)))
    return rising_knots


def _prompt_s_per_token(times: LayerTimes, chunk: int | None) -> float:
    """Least seconds of a layer for a prompt's token in steps of up to `chunk`."""
    sizes = [tokens for tokens, _ in times.prompt if chunk is None or tokens <= chunk]
    if chunk is None:
        sizes.append(_FAR * times.prompt[-1][0])
    else:
        sizes.append(float(chunk))
    return min(times.prompt_s(tokens) / tokens for tokens in sizes)


def _links(problem: Problem) -> tuple[dict[str, str], float, dict[str, float]]:
    """Groups of well linked nodes, seconds of the shortest link, and what a group's shortest link
    to another takes more.

    All nodes are one group where any holds the model. A new token comes back by a link, or by way
    of the coordinator.
    """
    names = [node.name for node in problem.cluster.nodes]
    bandwidth, latency = links_between(problem.cluster, [*names, COORDINATOR])
    hops_s = np.array([*(hop_s(problem, name) for name in names), math.inf])
    hop_s_NN = np.minimum(hops_s[:, None], hops_s[None, :])
    latency = np.where(bandwidth > 0, latency + hop_s_NN, math.inf)
    least_s = float(latency[:, :-1].min())
    groups, num_layers = link_groups(problem, LinkTable(problem)), problem.model.num_layers
    limits = [
        [layer_limits(problem, name) for name in group]
        for group in problem.cluster.names_by(lambda node: groups[node.name]).values()
    ]
    if least_s == math.inf or any(
        most_held(group, num_layers=num_layers) >= num_layers for group in limits
    ):
        return dict.fromkeys(names, ""), 0.0 if least_s == math.inf else least_s, {"": 0.0}
    group_N = np.array([groups[name] for name in names])
    ways_s = np.minimum(latency[:-1, :-1], latency[:-1, -1:] + latency[-1:, :-1])
    slow_s = {}
    for group in dict.fromkeys(groups.values()):
        leaving_s = float(ways_s[np.ix_(group_N == group, group_N != group)].min(initial=math.inf))
        slow_s[group] = 0.0 if leaving_s == math.inf else max(0.0, leaving_s - least_s)
    return groups, least_s, slow_s
