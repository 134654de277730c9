"""The loop of range annealing: ranges near the running ones that cover every layer with a target.

energy = sum over layers of max(0, target - coverage) + penalty * max(0, layers to load - budget),
where coverage is the sum of T_i(held_i) over the nodes that hold a layer.

`move_loop.c` is the same loop compiled; everything is an integer, so both give the same answer.
Change both together.
"""

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
    coverage = [0] * num_layers
    moved = 0
    for node, (first, end) in enumerate(ranges):
        moved += _to_load((first, end), task.running[node])
        for layer in range(first, end):
            coverage[layer] += speeds[node][end - first]
    energy = penalty * max(0, moved - budget)
    energy += sum(max(0, target - covered) for covered in coverage)
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
        kind = random % 8
        random = next_random(random)
        first, end = ranges[node]
        old_first, old_end = task.running[node]
        new_first, new_end = first, end
        if kind == 0:
            new_first += 1 if random % 2 else -1
        elif kind == 1:
            new_end += 1 if random % 2 else -1
        elif kind == 2:
            shift = 1 + random // 2 % 3 if random % 2 else -1 - random // 2 % 3
            new_first, new_end = first + shift, end + shift
        elif kind == 3:
            new_first, new_end = old_first, old_end
        elif kind == 4:
            new_first = new_end = old_first
            if old_end > old_first:
                new_first += random % (old_end - old_first)
                random = next_random(random)
                new_end = new_first + 1 + random % (old_end - new_first)
        else:
            # Around a layer that lacks something: only there can another range help.
            layer = random % num_layers
            for _ in range(num_layers):
                if coverage[layer] < target:
                    break
                layer = layer + 1 if layer + 1 < num_layers else 0
            random = next_random(random)
            held = 1 + random % limit
            random = next_random(random)
            new_first = layer - random % held
            new_end = new_first + held
        is_range = 0 <= new_first <= new_end <= num_layers and new_end - new_first <= limit
        if not is_range or (new_first, new_end) == (first, end):
            continue
        speed, new_speed = speeds[node][end - first], speeds[node][new_end - new_first]
        if new_end > new_first and new_speed == 0:
            continue
        new_moved = (
            moved
            - _to_load((first, end), (old_first, old_end))
            + _to_load((new_first, new_end), (old_first, old_end))
        )
        change = penalty * (max(0, new_moved - budget) - max(0, moved - budget))
        for layer in range(first, end):
            after = coverage[layer] - speed + (new_speed if new_first <= layer < new_end else 0)
            change += max(0, target - after) - max(0, target - coverage[layer])
        for layer in range(new_first, new_end):
            if layer < first or layer >= end:
                before = coverage[layer]
                change += max(0, target - before - new_speed) - max(0, target - before)
        if change > 0:
            random = next_random(random)
            room = threshold - threshold * iteration // moves
            if change > room * (random % 1024) // 1024:
                continue
        for layer in range(first, end):
            coverage[layer] -= speed
        for layer in range(new_first, new_end):
            coverage[layer] += new_speed
        ranges[node] = (new_first, new_end)
        moved = new_moved
        energy += change
    return energy, ranges


def _to_load(new: Ends, old: Ends) -> int:
    return new[1] - new[0] - max(0, min(new[1], old[1]) - max(new[0], old[0]))
