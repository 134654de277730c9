"""The loop of range annealing: ranges near the running ones that carry a target over every layer.

energy = sum over layers of lack(coverage) + penalty * max(0, layers to load - budget),

where lack(x) is target - x + charge below the target, else 0: the charge makes one layer that
lacks much better than many that lack little, which is what leads to none. Coverage is the sum over
the nodes that hold a layer of T_i(held_i) or, with links, of what such a node receives and sends
at most, if that is less. With links, nodes are taken to meet only where ranges meet, as if partial
inference were not allowed: what gains by it here rarely passes the links.

`move_loop.c` is the same loop compiled; everything is an integer, so both give the same answer.
Change both together.
"""

from planner.chance import next_random
from planner.placers.compiled.tasks import MoveTask

Ends = tuple[int, int]
"""(first layer, end); equal when nothing is held"""


def anneal_moves(
    task: MoveTask, *, ranges: list[Ends], threshold: int, moves: int, seed: int
) -> tuple[int, list[Ends]]:
    """The energy reached, 0 ending the search, and the ranges then; starts from `ranges`.

    Threshold accepting: a change for the worse is taken when it costs less than a random part of
    `threshold`, which sinks to 0 over the moves. `seed` is in 1 .. 2**31 - 2.
    """
    state = _State(task, ranges)
    speeds, ranges, coverage = state.speeds, state.ranges, state.coverage
    limits: list[list[int]] = task.limits_NE.tolist()
    penalty, budget, num_layers = task.penalty, task.budget_layers, task.num_layers
    n = len(speeds)
    moved = sum(_to_load(ends, task.running[node]) for node, ends in enumerate(ranges))
    energy = state.lack_of_all() + penalty * max(0, moved - budget)
    random = seed
    for iteration in range(moves):
        if energy <= 0:
            break
        random = next_random(random)
        node = random % n
        limit = limits[node][0]
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
                if coverage[layer] < task.target:
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
            and new_end - new_first <= limits[i][(new_first == 0) + 2 * (new_end == num_layers)]
            and (new_end == new_first or speeds[i][new_end - new_first] > 0)
            for i, (new_first, new_end) in changed
        ):
            continue
        before = [(i, ranges[i]) for i, _ in changed]
        new_moved = moved
        for i, new in changed:
            new_moved += _to_load(new, task.running[i]) - _to_load(ranges[i], task.running[i])
        change = state.change(changed)
        change += penalty * (max(0, new_moved - budget) - max(0, moved - budget))
        random = next_random(random)
        room = threshold - threshold * iteration // moves
        if change <= room * (random % 1024) // 1024:
            moved = new_moved
            energy += change
        else:
            state.change(before)
    return energy, ranges


class _State:
    """Who holds what, what it carries, and what covers each layer."""

    def __init__(self, task: MoveTask, ranges: list[Ends]) -> None:
        self.speeds: list[list[int]] = task.speeds_NJ.tolist()
        self.ranges = list(ranges)
        self.coverage = [0] * task.num_layers
        self._task = task
        self._links: list[list[int]] | None = None if task.links is None else task.links.tolist()
        self._carried = [self._measure(node) for node in range(len(ranges))]
        for node in range(len(ranges)):
            self._cover(node, sign=1)

    def lack_of_all(self) -> int:
        return sum(map(self._lack, self.coverage))

    def change(self, changed: list[tuple[int, Ends]]) -> int:
        """Give nodes these ranges; returns by how much the lack grows."""
        affected = self._affected(changed)
        grown = sum(self._cover(node, sign=-1) for node in affected)
        for node, ends in changed:
            self.ranges[node] = ends
        for node in affected:
            self._carried[node] = self._measure(node)
        return grown + sum(self._cover(node, sign=1) for node in affected)

    def _affected(self, changed: list[tuple[int, Ends]]) -> set[int]:
        """Those whose ranges change and, with links, those that they meet or will meet."""
        affected = {node for node, _ in changed}
        if self._links is None:
            return affected
        touched = [self.ranges[node] for node in affected] + [ends for _, ends in changed]
        firsts, ends = {first for first, _ in touched}, {end for _, end in touched}
        return affected | {
            node
            for node, (first, end) in enumerate(self.ranges)
            if first < end and (first in ends or end in firsts)
        }

    def _measure(self, node: int) -> int:
        """What a node computes and, with links, receives and sends at most."""
        first, end = self.ranges[node]
        speed = self.speeds[node][end - first]
        if self._links is None or first == end:
            return speed
        links, coordinator = self._links, len(self.ranges)
        received = links[coordinator][node] if first == 0 else 0
        sent = links[node][coordinator] if end == self._task.num_layers else 0
        for other, (other_first, other_end) in enumerate(self.ranges):
            if other_first < other_end:
                received += links[other][node] if other_end == first else 0
                sent += links[node][other] if other_first == end else 0
        return min(speed, received, sent)

    def _lack(self, covered: int) -> int:
        target = self._task.target
        return target - covered + self._task.charge if covered < target else 0

    def _cover(self, node: int, *, sign: int) -> int:
        grown = 0
        for layer in range(*self.ranges[node]):
            grown -= self._lack(self.coverage[layer])
            self.coverage[layer] += sign * self._carried[node]
            grown += self._lack(self.coverage[layer])
        return grown


def _to_load(new: Ends, old: Ends) -> int:
    return new[1] - new[0] - max(0, min(new[1], old[1]) - max(new[0], old[0]))
