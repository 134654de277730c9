"""The bound on served tokens: no placement and routing serves more output tokens/s for long.

**What is charged.** Let a part of a placement, which shares no node with others, serve X output
tokens/s with N requests in flight, tau = N / X seconds each per token. A node of it that holds j of
the L layers and passes v of the X on, its decodes b at a time,

* computes: `v ((1 - 1/O) t(b) / b + q) <= 1`. t(b) is the time of a step of b decodes, with the
  weights' reads in it; q is its share of a prompt, at the best size of chunk, per output token. The
  first token of the O of an answer comes of the prompt;
* has v <= X, for a request visits it at most once;
* has room: the requests that pass it are in flight for tau per token, so `v tau` of them are there
  (Little's law), at most the policy's share of its KV room over what one reserves, and one more:
  what is reserved grows with answers after the last request was let in;
* keeps b decodes busy: these spend b / v seconds each in it, then the shortest link's latency.

Over the nodes, `sum v j = X L`, as every token passes every layer, and `sum (b + v link) <= N`.
Where no group of well linked nodes holds the model, N counts a slow link more for every token and
group that it visits at least.

**Program.** Parts are sorted into cells of X and tau. In a cell [X1, X2] x [tau1, tau2] a node has
v <= min(X2, room / tau1), and all nodes of a part have `sum (b + v (link - tau2 j / L)) <= 0` and
`sum v j / L >= X1`. Where only one part can hold the model, a cell is impossible if some price
lambda has all nodes' best `v j / L - lambda (b + ...)` sum up to less than X1; the bound is the
highest X2 that is left, and its cells are divided until they are narrow. Of several parts a linear
program maximises the sum of `v j / L`: every node is used once, a cell has as many parts as it
likes, all together as many as can hold the model, and a part no more nodes than there are. Columns
are (cell, kind, j, b); its duals, repriced exactly, are the bound.

**What is assumed.** A decode waits for prompts as long as its node spends on them: b / v is the
time of its step over the share of time that is left to decodes. Estimates say so (`fixed_point`,
with `cycle_weight` at least); in simulations it holds on average, not for every schedule. They must
also be long: what a short window lacks of prompts or gains in short answers, it serves more.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from planner.bounds.link_groups import LinkTable, link_groups
from planner.bounds.node_kinds import NO_RULES, node_kinds
from planner.bounds.packing_program import PackingProgram
from planner.capacity import layer_limits, most_held
from planner.domain.cluster import COORDINATOR
from planner.domain.layer_times import LayerTimes
from planner.domain.problem import Problem
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
    if ways.most_parts == 0:
        yield 0.0
        return
    search, bound, idle = _Search(ways), math.inf, 0
    while (idle < tuned.IDLE or ways.most_parts == 1) and not should_stop():
        found = float(search.bound_tokens_per_s())
        idle = 0 if found < bound * (1 - tuned.LEAST_GAIN) else idle + 1
        if found < bound:
            bound = found
            yield bound
        if not search.divide():
            return


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ways:
    """Options of nodes: way w is to hold `layers_W` layers as a node of kind `kind_W`.

    `tokens_per_s_WB` with `_BATCHES` decodes at a time, never less than between two of them.
    """

    num_layers: int
    count_K: Floats
    kind_W: Integers
    layers_W: Floats
    room_W: Floats  # in requests
    link_s_W: Floats
    tokens_per_s_WB: Floats
    slots: float  # requests that a decode which is served counts for
    extra_s: float  # per token, on slow links
    most_parts: int  # that can each hold the model


class _Cells:
    """Classes of parts by their tokens/s and seconds per token: from `low` to `high` of either."""

    def __init__(self, low_C2: Floats, high_C2: Floats) -> None:
        self.low_C2, self.high_C2 = low_C2, high_C2

    def divided(self) -> "_Cells":
        """Each into four, halved either way where it is not narrow or endless."""
        low_C2, high_C2 = self.low_C2, self.high_C2
        for side in (0, 1):
            low, high = low_C2[:, side], high_C2[:, side]
            is_wide = (low > 0) & (high < math.inf) & (high > low * tuned.LEAST_RATIO)
            middle = np.sqrt(np.where(is_wide, low, 1.0) * np.where(is_wide, high, 1.0))
            first_high, second_low = high_C2.copy(), low_C2[is_wide].copy()
            first_high[is_wide, side] = middle[is_wide]
            second_low[:, side] = middle[is_wide]
            low_C2 = np.concatenate([low_C2, second_low])
            high_C2 = np.concatenate([first_high, high_C2[is_wide]])
        return _Cells(low_C2, high_C2)

    def __len__(self) -> int:
        return len(self.low_C2)

    def __getitem__(self, chosen: Any) -> "_Cells":
        return _Cells(self.low_C2[chosen], self.high_C2[chosen])

    def __add__(self, other: "_Cells") -> "_Cells":
        return _Cells(
            np.concatenate([self.low_C2, other.low_C2]),
            np.concatenate([self.high_C2, other.high_C2]),
        )


class _Search:
    """Cells that parts of a placement may be in, divided where the bound comes from."""

    def __init__(self, ways: _Ways) -> None:
        self._ways = ways
        self._first_W = np.flatnonzero(np.r_[True, np.diff(ways.kind_W) > 0])
        most_W = ways.layers_W * ways.tokens_per_s_WB.max(axis=1) / ways.num_layers
        most = float(np.maximum.reduceat(most_W, self._first_W) @ ways.count_K)
        shortest_s = ways.num_layers / float((ways.tokens_per_s_WB.T * ways.layers_W).max())
        rates = [0.0, *(most * 0.5 ** np.arange(tuned.RATES, -1, -1)).tolist()]
        seconds = [0.0, *(shortest_s * 2.0 ** np.arange(tuned.SECONDS)).tolist(), math.inf]
        pairs = [(r, s) for r in pairwise(rates) for s in pairwise(seconds)]
        self._cells = self._possible(
            _Cells(
                np.array([(rate[0], second[0]) for rate, second in pairs]),
                np.array([(rate[1], second[1]) for rate, second in pairs]),
            )
        )
        self._active = np.zeros(0, dtype=np.int64)
        # Of several parts: the program, and of every cell its part's column and its first row.
        self._program = PackingProgram([*ways.count_K, ways.most_parts])
        self._columns_C = self._rows_C = np.zeros(0, dtype=np.int64)

    def bound_tokens_per_s(self) -> float:
        if not len(self._cells):
            return 0.0
        if self._ways.most_parts == 1:
            highest_C = self._cells.high_C2[:, 0]
            bound = float(highest_C.max())
            self._active = np.flatnonzero(highest_C >= bound)
            return bound * _ROUNDING
        return self._of_several_parts()

    def divide(self) -> bool:
        """False where the cells that the bound comes from are narrow."""
        is_active = np.zeros(len(self._cells), dtype=np.bool_)
        is_active[self._active] = True
        chosen = self._cells[is_active]
        divided = chosen.divided()
        if len(divided) == len(chosen):
            return False
        is_left = ~is_active[: len(self._columns_C)]
        for column in self._columns_C[~is_left].tolist():
            self._program.close_column(column)
        self._columns_C, self._rows_C = self._columns_C[is_left], self._rows_C[is_left]
        self._cells = self._cells[~is_active] + self._possible(divided)
        return True

    def _possible(self, cells: _Cells) -> _Cells:
        """Cells without those in which all nodes together serve less than the cell's least.

        Least over prices of time of what the nodes are worth: any price proves it, and the worth
        is convex in the price.
        """
        value_CWB, use_CWB = self._columns(cells)

        def worth_C(price_C: Floats) -> Floats:
            gain_CW = (value_CWB - price_C[:, None, None] * use_CWB).max(axis=2)
            best_CK = np.maximum.reduceat(gain_CW, self._first_W, axis=1)
            return np.maximum(best_CK, 0.0) @ self._ways.count_K

        unit = float(value_CWB.max(initial=0.0)) or 1.0
        low_C, high_C = np.full(len(cells), math.log(1e-6)), np.full(len(cells), math.log(1e3))
        least_C = worth_C(np.zeros(len(cells)))
        for _ in range(tuned.PRICES):
            inner_C = (
                low_C + tuned.GOLDEN * (high_C - low_C),
                high_C - tuned.GOLDEN * (high_C - low_C),
            )
            left_C, right_C = (worth_C(unit * np.exp(inner)) for inner in inner_C)
            least_C = np.minimum(least_C, np.minimum(left_C, right_C))
            low_C = np.where(left_C < right_C, low_C, inner_C[0])
            high_C = np.where(left_C < right_C, inner_C[1], high_C)
        return cells[least_C >= cells.low_C2[:, 0] / _ROUNDING]

    def _of_several_parts(self) -> float:
        """The program of the module's docstring, its columns found one by one.

        It continues from the last division: divided cells are closed, and their parts added.
        """
        ways, cells, program = self._ways, self._cells, self._program
        kinds, count = len(ways.count_K), len(cells)
        value_CWB, use_CWB = self._columns(cells)
        low_C, high_C = cells.low_C2[:, 0], cells.high_C2[:, 0]
        for cell in range(len(self._columns_C), count):
            self._add_part(float(low_C[cell]), float(high_C[cell]))
        rows_CR = self._rows_C[:, None] + np.arange(3 + kinds)
        least = math.inf
        for _ in range(tuned.MOST_ROUNDS):
            solution = program.solve()
            prices_K = solution.row_prices[:kinds]
            own_CR = solution.row_prices[rows_CR]
            worth_C = 1.0 + own_CR[:, 1] - own_CR[:, 2]
            gain_CWB = worth_C[:, None, None] * value_CWB - own_CR[:, 0, None, None] * use_CWB
            gain_CW = gain_CWB.max(axis=2)
            best_CK = np.maximum.reduceat(gain_CW, self._first_W, axis=1)
            rent_C = np.maximum(best_CK - prices_K, 0.0) @ ways.count_K
            rent_C += own_CR[:, 2] * high_C - own_CR[:, 1] * low_C
            proven = float(prices_K @ ways.count_K) + ways.most_parts * max(0.0, rent_C.max())
            least = min(least, proven)
            lack_CK = best_CK - prices_K - own_CR[:, 3:]
            fresh = np.argwhere(lack_CK > tuned.PRECISION * np.abs(best_CK).max())
            if least <= solution.value * (1 + tuned.PRECISION) or not len(fresh):
                break
            for cell, kind in fresh.tolist():
                ways_of_kind = np.flatnonzero(ways.kind_W == kind)
                way = int(ways_of_kind[gain_CW[cell, ways_of_kind].argmax()])
                batch = int(gain_CWB[cell, way].argmax())
                value, own = float(value_CWB[cell, way, batch]), int(self._rows_C[cell])
                use = {kind: 1.0, own: float(use_CWB[cell, way, batch]), own + 3 + kind: 1.0}
                program.add_column(use | {own + 1: -value, own + 2: value}, value=value)
        self._active = np.flatnonzero(solution.amounts[self._columns_C] > 0)
        return least * _ROUNDING

    def _add_part(self, low: float, high: float) -> None:
        """A cell's column and rows: its time, the least and the most of its rate, its nodes."""
        kinds, own = len(self._ways.count_K), self._program.num_rows
        self._rows_C = np.append(self._rows_C, own)
        self._columns_C = np.append(self._columns_C, self._program.num_columns)
        self._program.add_rows([0.0] * (3 + kinds))
        use = {kinds: 1.0, own + 1: low, own + 2: -high}
        nodes = enumerate(self._ways.count_K.tolist(), start=own + 3)
        self._program.add_column(use | {row: -count for row, count in nodes}, value=0.0)

    def _columns(self, cells: _Cells) -> tuple[Floats, Floats]:
        """By cell, way and batch: tokens/s of all layers, and seconds used beyond its own."""
        ways = self._ways
        high_s_C = cells.high_C2[:, 1]
        with np.errstate(divide="ignore"):
            most_CW = np.minimum(cells.high_C2[:, :1], ways.room_W / cells.low_C2[:, 1:])
        tokens_CWB = np.minimum(ways.tokens_per_s_WB, most_CW[:, :, None])
        decodes = np.r_[0.0, _BATCHES]
        use_CWB = np.empty_like(tokens_CWB)
        for way, known_B in enumerate(ways.tokens_per_s_WB):
            use_CWB[:, way] = np.interp(tokens_CWB[:, way], np.r_[0.0, known_B], decodes)
        use_CWB = ways.slots * use_CWB + tokens_CWB * ways.link_s_W[:, None]
        value_CWB = tokens_CWB * (ways.layers_W / ways.num_layers)[:, None]
        is_endless = high_s_C == math.inf
        use_CWB -= value_CWB * np.where(is_endless, 0.0, high_s_C - ways.extra_s)[:, None, None]
        use_CWB[is_endless] = 0.0
        return value_CWB, use_CWB


def _ways(problem: Problem, *, policy: ServingPolicy, rules: PlacementRules) -> _Ways:
    estimator = Estimator(problem, policy=policy)
    figures, model = estimator.figures, estimator.model
    link_s, extra_s = _links(problem)
    kinds = node_kinds(
        problem,
        rules=rules,
        groups={node.name: node.compute_profile for node in problem.cluster.nodes},
    )
    reserved = estimator.lengths.reserved_tokens
    decodes_per_output = max(1 - 1 / model.output_tokens, _LEAST_DECODES)
    rows = []
    for number, kind in enumerate(kinds):
        name = kind.names[0]
        profile, times = problem.profile_of(name), layer_times_of(problem, name)
        least_B = np.maximum(_EVERY_BATCH, times.least_decodes).astype(np.int64)
        decode_s_B = figures.tables.decode_s_KB[figures.table_of[name]][least_B]
        slope_s = float(figures.tables.slope_s_K[figures.table_of[name]])
        prompt_s = _prompt_s_per_token(times, policy.prompt_chunk_tokens)
        prompt_s *= model.prompt_tokens / model.output_tokens
        chunks = 1 + model.prompt_tokens / (policy.prompt_chunk_tokens or math.inf)
        for layers in kind.tokens_per_s:
            # Where a step of both takes what is beside its layers once, prompts may cost nothing.
            shared_s = times.shared_s(has_head=False)
            prompts_s = layers * prompt_s - shared_s * chunks / model.output_tokens
            step_s_B = layers * decode_s_B + policy.step_overhead_s
            room = profile.kv_room_token_layers(layers, has_first=False, has_last=False) / layers
            least_s_B = decodes_per_output * np.maximum(step_s_B - shared_s, _LEAST_S)
            tokens_B = _EVERY_BATCH / np.maximum(
                decodes_per_output * step_s_B + _EVERY_BATCH * prompts_s, least_s_B
            )
            most_s = decodes_per_output * layers * max(slope_s, 0.0)
            most = 1 / (most_s + max(prompts_s, _LEAST_S))
            row = _not_below(tokens_B, most, origin=1 / (decodes_per_output * step_s_B[0]))
            fits = policy.kv_high_water * room / reserved + 1.0 if room > 0 else 0.0
            is_alone = layers == problem.model.num_layers
            rows.append((number, layers, fits, 0.0 if is_alone else link_s, row))
    held = sum(kind.count * max(kind.tokens_per_s) for kind in kinds)
    kind_W, layers_W, room_W, link_s_W, tokens_WB = zip(*rows, strict=True) if rows else ([],) * 5
    return _Ways(
        num_layers=problem.model.num_layers,
        count_K=np.array([float(kind.count) for kind in kinds]),
        kind_W=np.array(kind_W, dtype=np.int64),
        layers_W=np.array(layers_W, dtype=np.float64),
        room_W=np.array(room_W, dtype=np.float64),
        link_s_W=np.array(link_s_W, dtype=np.float64),
        tokens_per_s_WB=np.array(tokens_WB),
        slots=min(1.0, model.cycle_weight),
        extra_s=extra_s,
        most_parts=held // problem.model.num_layers,
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


def _links(problem: Problem) -> tuple[float, float]:
    """Seconds of the shortest link, and what the links between a token's groups take more.

    The latter is 0 where a group holds the model. A new token comes back by a link, or by way of
    the coordinator.
    """
    names = [node.name for node in problem.cluster.nodes]
    bandwidth, latency = links_between(problem.cluster, [*names, COORDINATOR])
    hops_s = np.array([*(hop_s(problem, name) for name in names), math.inf])
    hop_s_NN = np.minimum(hops_s[:, None], hops_s[None, :])
    latency = np.where(bandwidth > 0, latency + hop_s_NN, math.inf)
    least_s = float(latency[:, :-1].min())
    if least_s == math.inf:
        return 0.0, 0.0
    groups = link_groups(problem, LinkTable(problem))
    limits = [
        [layer_limits(problem, name) for name in group]
        for group in problem.cluster.names_by(lambda node: groups[node.name]).values()
    ]
    num_layers = problem.model.num_layers
    if any(most_held(group, num_layers=num_layers) >= num_layers for group in limits):
        return least_s, 0.0
    # A token visits at least as many groups as hold the model, and leaves each of them.
    most_first = sorted((sum(one.middle for one in group) for group in limits), reverse=True)
    visited = max(2, int(np.searchsorted(np.cumsum(most_first), num_layers)) + 1)
    group_N = np.array([groups[name] for name in names])
    ways_s = np.minimum(latency[:-1, :-1], latency[:-1, -1:] + latency[-1:, :-1])
    between_s = ways_s[group_N[:, None] != group_N[None, :]]
    slow_s = float(between_s.min(initial=math.inf))
    return least_s, 0.0 if slow_s == math.inf else visited * max(0.0, slow_s - least_s)
