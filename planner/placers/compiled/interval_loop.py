"""The loop of interval annealing: ranges that shall cover every layer with a target flow.

By the coverage theorem the max flow of ranges, where links do not bind and partial inference is
allowed, is the least over layers of sum T_i(held_i) over the nodes that hold it. The energy is what
all layers together lack to the target; the least covered layer alone would say too little.
With `spares` the fastest node of every layer does not count: what is left when any one node fails.

`interval_loop.c` is the same loop compiled. Flows are integers, so both give the same answer to
the last bit. Change both together.
"""

from planner.placers.compiled.tasks import (
    MINUS_LOGARITHMS,
    Annealed,
    IntervalTask,
    Range,
    Schedule,
    next_random,
)


def anneal_intervals(
    task: IntervalTask, *, ranges: list[Range], schedule: Schedule
) -> Annealed[int, list[Range]]:
    """Anneal from `ranges`, one for every node."""
    speeds: list[list[int]] = task.speeds_NJ.tolist()
    limits: list[list[int]] = task.limits_NE.tolist()
    logarithms: list[float] = MINUS_LOGARITHMS.tolist()
    n, num_layers = len(speeds), task.num_layers
    ranges = list(ranges)
    coverage = Coverage(task, speeds, ranges)
    missing = num_layers * task.target
    for node, (first, held) in enumerate(ranges):
        missing += coverage.add(first, held, speeds[node][held])
    best, best_ranges = missing, list(ranges)
    temperature, cooling, random = (
        schedule.hot * task.target,
        schedule.cooling,
        schedule.first_random,
    )
    for _ in range(schedule.moves):
        if best <= 0:
            break
        temperature *= cooling
        random = next_random(random)
        kind = random % 8
        random = next_random(random)
        u = random % n
        random = next_random(random)
        if limits[u][0] == 0:
            continue
        changed: list[tuple[int, Range]] = []
        first, held = ranges[u]
        if kind == 0:
            held = 1 + random % limits[u][0]
            random = next_random(random)
            first = random % (num_layers - held + 1)
        elif kind == 1:
            v = random % n
            if v == u or limits[v][0] == 0 or held > limits[v][ends_of(first, held, num_layers)]:
                continue
            changed.append((v, (first, held)))
            first, held = ranges[v]
        elif kind < 4:
            first += random % 7 - 3
        elif kind < 6:
            held += random % 3 - 1
        else:
            step = random % 3 - 1
            first, held = first + step, held - step
        if held < 0 or first < 0 or first + held > num_layers:
            continue
        if held > limits[u][ends_of(first, held, num_layers)]:
            continue
        changed.append((u, (first, held)))
        before, coverage_before = [ranges[node] for node, _new in changed], coverage.copied()
        delta = 0
        for node, _new in reversed(changed):
            old_first, old_held = ranges[node]
            ranges[node] = (old_first, 0)
            delta += coverage.add(old_first, old_held, -speeds[node][old_held])
        for node, (new_first, new_held) in changed:
            delta += coverage.add(new_first, new_held, speeds[node][new_held])
        random = next_random(random)
        if delta <= temperature * logarithms[random % len(logarithms)]:
            for node, new in changed:
                ranges[node] = new
            missing += delta
            if missing < best:
                best, best_ranges = missing, list(ranges)
        else:
            for (node, _new), old in zip(changed, before, strict=True):
                ranges[node] = old
            coverage.return_to(coverage_before)
    return Annealed(energy=best, best=best_ranges, last=ranges)


def ends_of(first: int, held: int, num_layers: int) -> int:
    """The column of `limits_NE` for these layers."""
    return (first == 0) + 2 * (first + held == num_layers)


class Coverage:
    """The speed that serves every layer, its fastest node's part, and what it lacks to the target.

    It looks at `ranges`, which change, only for who is fastest once the fastest has left a layer.
    """

    def __init__(self, task: IntervalTask, speeds: list[list[int]], ranges: list[Range]) -> None:
        self._target, self._spares = task.target, task.spares
        self._speeds, self._ranges = speeds, ranges
        self._covered = [0] * task.num_layers
        self._fastest = [0] * task.num_layers

    def add(self, first: int, held: int, speed: int) -> int:
        """Add `speed` to layers [first, first + held); returns by how much the lack grows.

        A node whose speed is taken away must hold nothing by then.
        """
        grown = 0
        for layer in range(first, first + held):
            grown -= self._lack(layer)
            self._covered[layer] += speed
            if self._spares > 0 and speed > self._fastest[layer]:
                self._fastest[layer] = speed
            if self._spares > 0 and -speed == self._fastest[layer]:
                self._fastest[layer] = self._fastest_at(layer)
            grown += self._lack(layer)
        return grown

    def copied(self) -> tuple[list[int], list[int]]:
        return list(self._covered), list(self._fastest)

    def return_to(self, copied: tuple[list[int], list[int]]) -> None:
        self._covered, self._fastest = copied

    def _lack(self, layer: int) -> int:
        return max(0, self._target - self._covered[layer] + self._fastest[layer])

    def _fastest_at(self, layer: int) -> int:
        holders = (
            row[held]
            for row, (first, held) in zip(self._speeds, self._ranges, strict=True)
            if first <= layer < first + held
        )
        return max(holders, default=0)
