"""The loop of range annealing: ranges near the running ones that cover every layer with a target.

energy = sum over layers of max(0, target - coverage) + penalty * max(0, layers to load - budget),
where coverage is the sum of T_i(held_i) over the nodes that hold a layer.

`move_loop.c` is the same loop compiled; everything is an integer, so both give the same answer.
Change both together.
"""

from planner.placers.compiled.interval_loop import Coverage
from planner.placers.compiled.tasks import MoveTask, next_random

Ends = tuple[int, int]
"""(first layer, end); equal when nothing is held"""


def anneal_moves(
    task: MoveTask, *, ranges: list[Ends], threshold: int, moves: int, seed: int
) -> tuple[int, list[Ends]]:
    """The energy reached, 0 ending the search, and the ranges then; starts from `ranges`.

    Threshold accepting: a change for the worse is taken when it costs less than a random part of
    `threshold`, which sinks to 0 over the moves. `seed` is in 1 .. 2**31 - 2.
    """
    speeds: list[list[int]] = task.speeds_NJ.tolist()
    limits: list[int] = task.limits_N.tolist()
    ranges = list(ranges)
    target, penalty, budget = task.target, task.penalty, task.budget_layers
    n, num_layers = len(speeds), task.num_layers
    coverage = Coverage(num_layers, target)
    moved = 0
    energy = num_layers * target
    for node, (first, end) in enumerate(ranges):
        moved += _to_load((first, end), task.running[node])
        energy += coverage.add(first, end - first, speeds[node][end - first])
    energy += penalty * max(0, moved - budget)
    random = seed
    for iteration in range(moves):
        if energy <= 0:
            break
        random = next_random(random)
        node = random % n
        limit = limits[node]
        if limit == 0:
            continue
        random = next_random(random)
        kind = random % 10
        random = next_random(random)
        first, end = ranges[node]
        old_first, old_end = task.running[node]
        changed: list[tuple[int, Ends]] = []
        if kind == 0:
            first += 1 if random % 2 else -1
        elif kind == 1:
            end += 1 if random % 2 else -1
        elif kind == 2:
            shift = 1 + random // 2 % 3 if random % 2 else -1 - random // 2 % 3
            first, end = first + shift, end + shift
        elif kind == 3:
            first, end = old_first, old_end
        elif kind == 4:
            first = end = old_first
            if old_end > old_first:
                first += random % (old_end - old_first)
                random = next_random(random)
                end = first + 1 + random % (old_end - first)
        elif kind == 5:
            # Join another node, where it is or where it was: stages stay whole.
            first, end = ranges[random % n]
        elif kind == 6:
            first, end = task.running[random % n]
        elif kind == 7:
            # Around a layer that lacks something: only there can another range help.
            layer = random % num_layers
            for _ in range(num_layers):
                if coverage.layers[layer] < target:
                    break
                layer = layer + 1 if layer + 1 < num_layers else 0
            random = next_random(random)
            held = 1 + random % limit
            random = next_random(random)
            first = layer - random % held
            end = first + held
        else:
            other = random % n
            changed.append((other, (first, end)))
            first, end = ranges[other]
        changed.insert(0, (node, (first, end)))
        if (first, end) == ranges[node] or not all(
            0 <= new_first <= new_end <= num_layers
            and new_end - new_first <= limits[i]
            and (new_end == new_first or speeds[i][new_end - new_first] > 0)
            for i, (new_first, new_end) in changed
        ):
            continue
        change, new_moved = 0, moved
        for i, new in changed:
            new_moved += _to_load(new, task.running[i]) - _to_load(ranges[i], task.running[i])
            change += _cover(coverage, ranges[i], speeds[i], sign=-1)
        for i, new in changed:
            change += _cover(coverage, new, speeds[i], sign=1)
        change += penalty * (max(0, new_moved - budget) - max(0, moved - budget))
        random = next_random(random)
        room = threshold - threshold * iteration // moves
        if change <= room * (random % 1024) // 1024:
            for i, new in changed:
                ranges[i] = new
            moved = new_moved
            energy += change
            continue
        for i, new in changed:
            _cover(coverage, new, speeds[i], sign=-1)
        for i, _new in changed:
            _cover(coverage, ranges[i], speeds[i], sign=1)
    return energy, ranges


def _cover(coverage: Coverage, ends: Ends, speeds: list[int], *, sign: int) -> int:
    first, end = ends
    return coverage.add(first, end - first, sign * speeds[end - first])


def _to_load(new: Ends, old: Ends) -> int:
    return new[1] - new[0] - max(0, min(new[1], old[1]) - max(new[0], old[0]))
