"""The estimate's fixed point as `planner/estimate/fixed_point.py` describes it, to the last bit."""

import math

from planner.estimate.fixed_point import Sustained
from planner.estimate.load import OUTSIDE, Load, Tables
from planner.estimate.model import Model

_CYCLE_STEPS = 40
_SEARCH_STEPS = 60
_PRECISION = 1e-7
_SETTLED = 1e-7
_TURNS = 4
_SETTLED_STAYS = 0.02
_OWN_STEPS = 0.5
_ALL = 0.999  # of the requests, by a node that alone holds its layers
_FELT = 0.95  # of the cap; smaller batches do not feel it


NOTHING = Sustained(0.0, 0.0, 0.0, 0.0)


def sustained(model: Model, load: Load, tables: Tables) -> Sustained:
    groups = _groups(load)
    stays = [1.0] * len(load.group_N)
    caps = [math.inf] * len(load.group_N)
    found = NOTHING
    in_flight = model.prompts_in_flight * (model.output_tokens + 1)
    for turn in range(_TURNS):
        shares, room = _shares(load, groups, stays)
        if not shares:
            return NOTHING
        if model.cap_divisor > 0:
            caps = [max(model.cap_floor, room * share / model.cap_divisor) for share in shares]
        cluster = _Cluster(model, load, tables, shares, _edge_shares(load, shares), caps)
        in_flight = min(in_flight, room)
        cluster.count_together(groups, in_flight)
        found = _largest(model, cluster, room)
        if found.decode_tokens_per_s <= 0 or turn + 1 == _TURNS:
            break
        # Requests stay longer in a slow node's room than in its neighbours'.
        trip, _ = cluster.delays_s(found.decode_tokens_per_s)
        change = 1 - found.held / in_flight if cluster.steps_together else 0.0
        in_flight = found.held
        for start, end in groups:
            whole, visits = 0.0, 0.0
            for node in range(start, end):
                whole += shares[node]
                visits += shares[node] * cluster.visits_s[node]
            for node in range(start, end):
                if whole > 0:
                    stay = 1 + (cluster.visits_s[node] - visits / whole) / trip
                    change = max(change, abs(stay - stays[node]))
                    stays[node] = (stays[node] + stay) / 2
        if model.most_micro_batches > 0:
            for node, share in enumerate(shares):
                if share > 0:
                    change = max(change, cluster.measure_cap(node, trip, room))
        if change <= _SETTLED_STAYS:
            break
    return found


def _largest(model: Model, cluster: "_Cluster", room: float) -> Sustained:
    """The largest rate whose requests fit into `room`."""
    trip, ttft = cluster.delays_s(0.0)
    if trip <= 0 or trip > model.tpot_limit_s or ttft > model.ttft_limit_s:
        return NOTHING
    best_trip, best_ttft = trip, ttft
    low, high, below, above, side = 0.0, room / trip, -room, math.inf, 0
    for _ in range(_SEARCH_STEPS):
        if not high - low > _PRECISION * high:
            break
        rate = (low + high) / 2
        if above < math.inf:  # false position, each end's weight halved when it stays (Illinois)
            rate = low - below * (high - low) / (above - below)
        trip, ttft = cluster.delays_s(rate)
        excess = rate * trip + rate / model.output_tokens * ttft - room
        if (
            trip < 0
            or trip > model.tpot_limit_s
            or ttft > model.ttft_limit_s
            or rate / model.output_tokens * ttft > model.prompts_in_flight
        ):
            high, above, side = rate, math.inf, 0
        elif excess > 0:
            high, above = rate, excess
            if side > 0:
                below /= 2
            side = 1
        else:
            low, below = rate, excess
            if side < 0:
                above /= 2
            side = -1
            best_trip, best_ttft = trip, ttft
            if excess > -_PRECISION * room:
                break
    return Sustained(
        low, low * best_trip + low / model.output_tokens * best_ttft, best_trip, best_ttft
    )


def _groups(load: Load) -> list[tuple[int, int]]:
    starts = [
        node
        for node in range(len(load.group_N))
        if node == 0 or load.group_N[node] != load.group_N[node - 1]
    ]
    return list(zip(starts, [*starts[1:], len(load.group_N)], strict=True))


def _shares(
    load: Load, groups: list[tuple[int, int]], stays: list[float]
) -> tuple[list[float], float]:
    """(shares of the nodes, requests that fit), none where nothing fits.

    A request stays `stays` times as long as the average one if it goes by that node.
    """
    held = math.inf
    for start, end in groups:
        whole, fits = 0.0, 0.0
        for node in range(start, end):
            if load.share_N[node] > 0:
                fits += float(load.room_N[node]) / stays[node]
            whole += float(load.share_N[node])
        if whole > 0:
            held = min(held, fits / whole)
    if not 0 < held < math.inf:
        return [], 0.0
    return [share for group in groups for share in _filled(load, group, stays, held)], held


def _filled(load: Load, group: tuple[int, int], stays: list[float], held: float) -> list[float]:
    """min(level * share, room / held) of the group's nodes, the level such that the sum stays."""
    shares = [float(load.share_N[node]) for node in range(*group)]
    tops = [float(load.room_N[node]) / stays[node] / held for node in range(*group)]
    level, full, before = 1.0, 0, -1
    while full > before:
        before, full, left, opened = full, 0, 0.0, 0.0
        for share, top in zip(shares, tops, strict=True):
            left += share
            if level * share < top:
                opened += share
            else:
                left -= top
                full += 1
        if full > 0 and opened > 0:
            level = max(level, left / opened)
    return [min(level * share, top) for share, top in zip(shares, tops, strict=True)]


def _edge_shares(load: Load, shares: list[float]) -> list[float]:
    edge_shares = []
    for edge, share in enumerate(load.share_E.tolist()):
        tail, head = int(load.tail_E[edge]), int(load.head_E[edge])
        if share > 0 and tail != OUTSIDE:
            share *= shares[tail] / float(load.share_N[tail])
        if share > 0 and head != OUTSIDE:
            share *= shares[head] / float(load.share_N[head])
        edge_shares.append(share)
    return edge_shares


class _Cluster:
    """Delays at any rate."""

    def __init__(
        self,
        model: Model,
        load: Load,
        tables: Tables,
        shares: list[float],
        edge_shares: list[float],
        caps: list[float],
    ) -> None:
        self._model = model
        self._together = 0.0
        self._load = load
        self._tables = tables
        self._shares = shares
        self._edge_shares = edge_shares
        self._caps = caps
        self.visits_s = [0.0] * len(shares)
        self._cycles_s = [0.0] * len(shares)
        self._batches = [1.0] * len(shares)

    def delays_s(self, rate: float) -> tuple[float, float]:
        """(round trip, time to first token) at `rate` decode tokens/s; (-1, 0) if too much."""
        model, load = self._model, self._load
        requests = rate / model.output_tokens
        trip, first, outer, slowest, queued, longest = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        for node, share in enumerate(self._shares):
            if share <= 0:
                continue
            step = (
                float(load.layers_N[node]) * float(load.step_s_N[node])
                + model.step_tokens * model.copy_s_per_token
                + model.step_overhead_s
            )
            busy = share * requests * model.steps_per_prompt * step
            if busy >= 1:
                return -1.0, 0.0
            found = self._cycle(node, share * rate, busy)
            if found is None:
                return -1.0, 0.0
            cycle, batch = found
            self._cycles_s[node], self._batches[node] = cycle, batch
            # A step takes one chunk with its decodes.
            taken = cycle * (1 - busy) + step
            filled = share * requests * model.chunks_per_prompt * taken
            if filled >= 1:
                return -1.0, 0.0
            if node == 0 or load.group_N[node] != load.group_N[node - 1]:
                queued = 0.0
            queued += share * filled * taken * (model.steps_per_prompt + 1) / 2 / (1 - filled)
            longest = max(longest, queued)
            prompts_s = busy * model.squares_ratio * step / 2
            visit = model.cycle_weight * cycle + model.residual_weight * prompts_s
            if self._together > 0 and share >= _ALL:
                # One step of all that came together, since no other node takes some of them.
                batch = max(batch, min(self._together, float(load.decode_limit_N[node])))
                self._batches[node] = batch
                step_s = self._step_s(node, batch)
                visit = max(visit, step_s + model.lone_residual_weight * prompts_s)
            visit += model.convoy_weight * share * step * min(
                1.0, 2 * requests
            ) + model.own_weight * step * min(1.0, share * requests)
            self.visits_s[node] = visit
            trip += share * visit
            first += share * step
            slowest = max(slowest, step)
        for edge, share in enumerate(self._edge_shares):
            if share <= 0:
                continue
            waited = self._link(edge, share, rate)
            if waited is None:
                return -1.0, 0.0
            if OUTSIDE in (load.tail_E[edge], load.head_E[edge]):
                outer += share * waited[0]
            else:
                trip += share * waited[0]
            if load.head_E[edge] == OUTSIDE:
                continue
            first += share * waited[1]
            slowest = max(slowest, waited[2])
        ttft = trip + outer + longest + first + max(0.0, model.steps_per_prompt - 1) * slowest
        return trip + load.return_s, ttft

    def count_together(self, groups: list[tuple[int, int]], held: float) -> None:
        """Requests that step as one where a node alone holds its layers: what fills a step on a
        node of the widest group. None where latency limits keep steps short.
        """
        widest, stages, alone = 1.0, 0.0, 0.0
        for group in groups:
            shares = self._shares[slice(*group)]
            for share in shares:
                stages += share
            if max(shares) > 0:
                widest = min(widest, max(shares))
            alone = max(alone, max(shares))
        together = max(1.0, min(self._model.most_micro_batches, stages))
        limited = min(self._model.tpot_limit_s, self._model.ttft_limit_s) < math.inf
        if self._model.most_micro_batches > 0 and alone >= _ALL and not limited:
            self._together = held * widest / together
            self._gather_less_on_slow_links()

    def _gather_less_on_slow_links(self) -> None:
        load = self._load
        for edge, (tail, head) in enumerate(zip(load.tail_E, load.head_E, strict=True)):
            if OUTSIDE not in (tail, head) and self._shares[head] >= _ALL:
                most = self._step_s(head, self._together) * float(load.bandwidth_E[edge])
                self._together = min(self._together, most / self._model.activation_bytes)

    def _step_s(self, node: int, batch: float) -> float:
        decode, _ = self._decode_s(int(self._load.table_N[node]), max(batch, 2.0))
        seconds = float(self._load.layers_N[node]) * decode + batch * self._model.copy_s_per_token
        return seconds + self._model.step_overhead_s

    @property
    def steps_together(self) -> bool:
        return self._together > 0

    def measure_cap(self, node: int, trip_s: float, held: float) -> float:
        """Set the cap by the cycles that fit into the time requests are away; its change if felt.

        The stage's rule, `runtime.engine.decode_cap`, with half a step for a request's own.
        """
        model, before = self._model, self._caps[node]
        cycles = (trip_s - self.visits_s[node]) / self._cycles_s[node] + _OWN_STEPS
        micro_batches = min(max(cycles, 1.0), model.most_micro_batches)
        cap = max(model.cap_floor, held * self._shares[node] / micro_batches)
        if before < math.inf:
            self._caps[node] = (before + cap) / 2
        elif self._batches[node] > cap:
            self._caps[node] = cap
        if self._batches[node] < _FELT * min(before, cap):
            return 0.0
        return abs(cap - min(before, 2 * cap)) / cap

    def _cycle(self, node: int, tokens_per_s: float, busy: float) -> tuple[float, float] | None:
        """(seconds, decodes) of a node's cycle; None where decodes outrun it."""
        model, load = self._model, self._load
        table = int(load.table_N[node])
        layers = float(load.layers_N[node])
        batch = 1.0
        for _ in range(_CYCLE_STEPS):
            decode, slope = self._decode_s(table, max(batch, 2.0))
            cycle = (layers * decode + batch * model.copy_s_per_token + model.step_overhead_s) / (
                1 - busy
            )
            growth = model.copy_s_per_token + (layers * slope if batch >= 2 else 0.0)
            growth = tokens_per_s * growth / (1 - busy)
            following = max(1.0, tokens_per_s * cycle)
            if growth < 1:  # Newton's step, exact within a segment of the table
                following = max(1.0, batch + (following - batch) / (1 - growth))
            settled = abs(following - batch) <= _SETTLED * batch
            batch = following
            if settled:
                most = min(float(load.decode_limit_N[node]), self._caps[node])
                return None if batch > most else (cycle, batch)
        return None

    def _decode_s(self, table: int, batch: float) -> tuple[float, float]:
        """(seconds of a layer, its slope in seconds per sequence)."""
        seconds = self._tables.decode_s_KB[table]
        last = len(seconds) - 1
        if batch >= last:
            slope = float(self._tables.slope_s_K[table])
            return float(seconds[last]) + slope * (batch - last), slope
        below = int(batch)
        lower = float(seconds[below])
        slope = float(seconds[below + 1]) - lower
        return lower + slope * (batch - below), slope

    def _link(self, edge: int, share: float, rate: float) -> tuple[float, float, float] | None:
        """Seconds of (a decode, a prompt chunk, a chunk's sending alone); None beyond the rate."""
        model, load = self._model, self._load
        requests = rate / model.output_tokens
        tail, head = int(load.tail_E[edge]), int(load.head_E[edge])
        size = model.token_bytes if OUTSIDE in (tail, head) else model.activation_bytes
        bandwidth = float(load.bandwidth_E[edge]) * (1 - rate * float(load.crowding_E[edge]))
        if not bandwidth > 0:
            return None
        per_token = size / bandwidth
        decodes = share * rate * per_token
        prompts = 0.0 if head == OUTSIDE else share * requests * model.prompt_tokens * per_token
        if decodes + prompts >= 1:
            return None
        batch = 1.0
        if model.grouped > 0 and tail != OUTSIDE:
            batch = max(1.0, self._batches[tail] * share / self._shares[tail])
        message, chunk = batch * per_token, model.step_tokens * per_token
        wait = decodes * message / 2 / (1 - decodes)
        if model.prompts_first > 0:
            wait = (decodes * message + prompts * model.link_wait_weight * chunk) / 2
            wait /= 1 - decodes - prompts
        else:
            piece = min(chunk, model.piece_bytes / bandwidth)
            wait += prompts * piece / 2
        sent = chunk / (1 - decodes)
        queued = prompts * model.link_queue_weight * sent / 2
        queued /= 1 - decodes - prompts
        return float(load.latency_E[edge]) + message + wait, sent + queued, sent
