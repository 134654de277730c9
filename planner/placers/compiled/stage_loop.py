"""The loop of stage-sequence annealing: a chain of stages that shall carry a target flow.

Every node is in one slot (a stage) or in none (-1). The slots form a ring in pipeline order that
begins and ends at the coordinator, slot n of n nodes. A stage is as long as its nodes together
carry the target: the largest j with sum T_i(j) >= target.

Lack = missing layers + excess stages + weight * (sum of what crossings cannot carry) / target.
The sum over all crossings, not the worst one: every crossing that gets better is rewarded. Lack 0
is a chain that carries the target: every node's share of it is fixed by its stage alone, so what
enters a stage over one crossing is what leaves it over the next.

What is annealed rewards speed towards a stage's next layer as well: a stage of 80 % of what one
more layer needs is nearer to it than one of 10 %. Once all layers are held they stay so, and the
rest is about crossings.

`stage_loop.c` is the same loop compiled. Flows are integers, so both give the same answer to the
last bit. Change both together.
"""

from collections.abc import Callable, Iterator

from planner.placers.compiled.tasks import (
    MINUS_LOGARITHMS,
    Annealed,
    Schedule,
    StageTask,
    next_random,
)

_PARTS_OF_LAYER = 1024
# Measured on 100 generated nodes in 10 regions: chains that 1e6 moves did not find without credit
# are found in most tries with 0.3 to 0.5 of a layer, in few with a whole one.
_CREDIT = 0.4
_ALL_HELD = -1000.0


def anneal_stages(
    task: StageTask, *, ranks: list[int], schedule: Schedule
) -> Annealed[float, list[int]]:
    """Anneal from the stage numbers `ranks` of every node, -1 for nodes in no stage."""
    chain = Chain(task, ranks)
    return chain.anneal(schedule)


class Chain:
    """The state of a search; what depends on it is kept up to date, and can be undone."""

    def __init__(self, task: StageTask, ranks: list[int]) -> None:
        self._n = n = len(task.speeds_NJ)
        self._task = task
        self._speeds: list[list[int]] = task.speeds_NJ.tolist()
        self._links: list[list[int]] = task.links.tolist()
        self._limits = None if task.limits_NE is None else task.limits_NE.tolist()
        self._target = task.target
        self._longest = task.speeds_NJ.shape[1] - 1
        self._next_slot = [n] * (n + 1)
        self._prev_slot = [n] * (n + 1)
        self._slot_of = [-1] * n
        self._members: list[list[int]] = [[] for _ in range(n)]
        self._lengths = [0] * (n + 1)
        self._deficits = [0] * (n + 1)
        self._parts = [0] * (n + 1)
        self._free_slots: list[int] = []
        self._undo_log: list[Callable[[], None]] = []
        for node, rank in enumerate(ranks):
            if rank >= 0:
                self._add_node(node, rank)
        for slot in range(n):
            if self._members[slot]:
                self._link_slots(slot, slot, before=self._prev_slot[n])
            else:
                self._free_slots.append(slot)
        self._ends = self._next_slot[n], self._prev_slot[n]
        for slot in self._ring():
            self._lengths[slot] = self._stage_length(slot)
            self._parts[slot] = self._parts_of_next_layer(slot)
        self._layers = sum(self._lengths)
        self._all_parts = sum(self._parts)
        for slot in (n, *self._ring()):
            self._deficits[slot] = self._crossing_deficit(slot)
        self._deficit = sum(self._deficits)

    def anneal(self, schedule: Schedule) -> Annealed[float, list[int]]:
        neighbours: list[list[int]] = self._task.neighbours_NK.tolist()
        num_neighbours = self._task.neighbours_NK.shape[1]
        logarithms: list[float] = MINUS_LOGARITHMS.tolist()
        energy = self._energy()
        best, best_ranks = self._lack(), self._ranks()
        temperature, cooling, random = schedule.hot, schedule.cooling, schedule.first_random
        for _ in range(schedule.moves):
            if best <= 0.0:
                break
            temperature *= cooling
            random = next_random(random)
            kind = random % 16
            random = next_random(random)
            u = random % self._n
            random = next_random(random)
            if num_neighbours > 0 and kind % 2 == 0:
                v = neighbours[u][random % num_neighbours]
            else:
                v = random % self._n
            random = next_random(random)
            self._undo_log.clear()
            tails = self._try_move(kind, u, v, random)
            if not tails:
                continue
            for tail in [*tails, *self._settle_ends()]:
                self._set_deficit(tail, self._crossing_deficit(tail))
            proposed = self._energy()
            random = next_random(random)
            if proposed - energy <= temperature * logarithms[random % len(logarithms)]:
                energy, lack = proposed, self._lack()
                if lack < best:
                    best, best_ranks = lack, self._ranks()
            else:
                self._undo()
        return Annealed(energy=best, best=best_ranks, last=self._ranks())

    def _try_move(self, kind: int, u: int, v: int, random: int) -> list[int]:
        """Make a move of node u towards node v; returns the slots whose crossing may change."""
        a, b = self._slot_of[u], self._slot_of[v]
        if b < 0 or (a == b and not 10 <= kind <= 12):
            return []
        if kind < 6:
            return self._relocate(u, b)
        if kind < 10:
            return self._swap(u, v) if a >= 0 else []
        if kind < 13:
            if not self._free_slots:
                return []
            return self._open_stage(u, before=b if random % 2 == 0 else self._prev_slot[b])
        if a < 0:
            return []
        last = self._last_of_run(a, steps=random % 4, avoid=b)
        if last < 0 or self._prev_slot[a] == b:
            return []
        return self._shift_stages(a, last, before=b)

    def _relocate(self, u: int, b: int) -> list[int]:
        a = self._slot_of[u]
        self._move_node(u, b)
        tails = []
        if a >= 0:
            if self._members[a]:
                tails = [a, self._prev_slot[a]]
                self._set_length(a, self._stage_length(a))
            else:
                tails = [self._retire(a)]
        self._set_length(b, self._stage_length(b))
        return [*tails, b, self._prev_slot[b]]

    def _swap(self, u: int, v: int) -> list[int]:
        a, b = self._slot_of[u], self._slot_of[v]
        self._move_node(u, b)
        self._move_node(v, a)
        self._set_length(a, self._stage_length(a))
        self._set_length(b, self._stage_length(b))
        return [a, self._prev_slot[a], b, self._prev_slot[b]]

    def _open_stage(self, u: int, *, before: int) -> list[int]:
        """Move node u to a stage of its own after slot `before`."""
        b = self._free_slots.pop()
        self._undo_log.append(lambda: self._free_slots.append(b))
        self._link_slots(b, b, before=before)
        self._undo_log.append(lambda: self._unlink_slots(b, b))
        return self._relocate(u, b)

    def _shift_stages(self, first: int, last: int, *, before: int) -> list[int]:
        """Move the linked slots first .. last behind `before`."""
        came_from = self._prev_slot[first]
        self._unlink_slots(first, last)
        self._undo_log.append(lambda: self._link_slots(first, last, before=came_from))
        self._link_slots(first, last, before=before)
        self._undo_log.append(lambda: self._unlink_slots(first, last))
        return [came_from, last, before]

    def _settle_ends(self) -> list[int]:
        """Lengths again where a slot became the first or the last one, or is it no more.

        Returns the slots whose crossing may change.
        """
        before, now = self._ends, (self._next_slot[self._n], self._prev_slot[self._n])
        if self._limits is None or before == now:
            return []
        self._ends = now

        def back() -> None:
            self._ends = before

        self._undo_log.append(back)
        tails = []
        for slot in (*before, *now):
            if slot != self._n and self._members[slot]:
                self._set_length(slot, self._stage_length(slot))
                tails += [slot, self._prev_slot[slot]]
        return tails

    def _retire(self, slot: int) -> int:
        """Take a slot without nodes out of the ring; returns the one that was before it."""
        self._set_length(slot, 0)
        self._set_deficit(slot, 0)
        before = self._prev_slot[slot]
        self._unlink_slots(slot, slot)
        self._undo_log.append(lambda: self._link_slots(slot, slot, before=before))
        self._free_slots.append(slot)
        self._undo_log.append(lambda: self._drop_free_slot())
        return before

    def _drop_free_slot(self) -> None:
        self._free_slots.pop()

    def _move_node(self, node: int, slot: int) -> None:
        old = self._slot_of[node]
        if old >= 0:
            self._members[old].remove(node)
        self._add_node(node, slot)

        def back() -> None:
            self._members[slot].remove(node)
            self._slot_of[node] = -1
            if old >= 0:
                self._add_node(node, old)

        self._undo_log.append(back)

    def _add_node(self, node: int, slot: int) -> None:
        self._members[slot].insert(0, node)
        self._slot_of[node] = slot

    def _set_length(self, slot: int, length: int) -> None:
        old, old_parts = self._lengths[slot], self._parts[slot]
        self._layers += length - old
        self._lengths[slot] = length
        parts = self._parts_of_next_layer(slot)
        self._all_parts += parts - old_parts
        self._parts[slot] = parts

        def back() -> None:
            self._layers += old - length
            self._lengths[slot] = old
            self._all_parts += old_parts - parts
            self._parts[slot] = old_parts

        self._undo_log.append(back)

    def _set_deficit(self, slot: int, deficit: int) -> None:
        old = self._deficits[slot]
        if deficit != old:
            self._deficit += deficit - old
            self._deficits[slot] = deficit
            self._undo_log.append(lambda: self._set_deficit(slot, old))

    def _undo(self) -> None:
        steps = self._undo_log[::-1]
        for step in steps:
            step()

    def _link_slots(self, first: int, last: int, *, before: int) -> None:
        after = self._next_slot[before]
        self._next_slot[before], self._prev_slot[first] = first, before
        self._next_slot[last], self._prev_slot[after] = after, last

    def _unlink_slots(self, first: int, last: int) -> None:
        before, after = self._prev_slot[first], self._next_slot[last]
        self._next_slot[before], self._prev_slot[after] = after, before

    def _ring(self) -> Iterator[int]:
        slot = self._next_slot[self._n]
        while slot != self._n:
            yield slot
            slot = self._next_slot[slot]

    def _last_of_run(self, first: int, *, steps: int, avoid: int) -> int:
        """The slot up to `steps` after `first` in the ring, or -1 if `avoid` is among them."""
        last = first
        while steps > 0 and self._next_slot[last] != self._n:
            last = self._next_slot[last]
            if last == avoid:
                return -1
            steps -= 1
        return last

    def _energy(self) -> float:
        lack = self._lack()
        if self._layers >= self._task.num_layers:
            return lack + _ALL_HELD
        return lack - _CREDIT * self._all_parts / _PARTS_OF_LAYER

    def _lack(self) -> float:
        missing = max(0, self._task.num_layers - self._layers)
        excess = max(0, self._n - len(self._free_slots) - self._task.max_stages)
        return missing + excess + self._task.weight * self._deficit / self._target

    def _ranks(self) -> list[int]:
        ranks = [-1] * self._n
        for rank, slot in enumerate(self._ring()):
            for node in self._members[slot]:
                ranks[node] = rank
        return ranks

    def _stage_length(self, slot: int) -> int:
        """The most layers that the slot's nodes together carry the target with."""
        for length in range(self._longest, 0, -1):
            if sum(self._speeds_at(slot, length)) >= self._target:
                return length
        return 0

    def _speeds_at(self, slot: int, length: int) -> list[int]:
        """Of the slot's nodes; 0 for more layers than a node holds beside the model's ends."""
        members = self._members[slot]
        speeds = [self._speeds[node][length] for node in members]
        at = (self._next_slot[self._n] == slot) + 2 * (self._prev_slot[self._n] == slot)
        if self._limits is None or at == 0:
            return speeds
        return [
            speed if length <= self._limits[node][at] else 0
            for speed, node in zip(speeds, members, strict=True)
        ]

    def _parts_of_next_layer(self, slot: int) -> int:
        """How far the slot's speed is on the way from its length to one more layer, in parts."""
        length = self._lengths[slot]
        following = sum(self._speeds_at(slot, length + 1)) if length < self._longest else 0
        if length == 0:
            return following * _PARTS_OF_LAYER // self._target
        here = sum(self._speeds_at(slot, length))
        return (here - self._target) // ((here - following) // _PARTS_OF_LAYER + 1)

    def _nodes_and_rooms(self, slot: int) -> tuple[list[int], list[int]]:
        """The nodes of a slot that pass anything, and how much each shall."""
        if slot == self._n:
            return [self._n], [self._target]
        speeds = self._speeds_at(slot, self._lengths[slot])
        passing = [
            (node, speed)
            for node, speed in zip(self._members[slot], speeds, strict=True)
            if speed > 0
        ]
        return [node for node, _ in passing], _equal_shares(
            self._target, [speed for _, speed in passing]
        )

    def _crossing_deficit(self, slot: int) -> int:
        """target - the most the slot's nodes can send its successor's over their links, or 0.

        Greedy first, then shortest augmenting paths.
        """
        left, left_room = self._nodes_and_rooms(slot)
        right, right_room = self._nodes_and_rooms(self._next_slot[slot])
        spare = [[self._links[source][sink] for sink in right] for source in left]
        carried = [[0] * len(right) for _ in left]
        missing = self._target
        for k, room in enumerate(left_room):
            for m in range(len(right)):
                push = min(spare[k][m], room, right_room[m])
                carried[k][m] = push
                spare[k][m] -= push
                room -= push
                right_room[m] -= push
                missing -= push
            left_room[k] = room
        while missing > 0:
            push = _augment(left_room, right_room, spare, carried)
            if push == 0:
                return missing
            missing -= push
        return 0


def _equal_shares(target: int, rooms: list[int]) -> list[int]:
    """Parts of the target, none above its room, the others equal; too small rooms as they are."""
    left, equal, share, before = target, len(rooms), 0, -1
    while equal > 0 and equal != before:
        before = equal
        share = left // equal
        left = target - sum(room for room in rooms if room <= share)
        equal = sum(room > share for room in rooms)
    if left <= 0 or equal == 0:
        return rooms
    share = left // equal
    rest = left - share * equal
    shares = []
    for room in rooms:
        if room <= share:
            shares.append(room)
        else:
            shares.append(share + (1 if rest > 0 else 0))
            rest -= 1
    return shares


def _augment(
    left_room: list[int], right_room: list[int], spare: list[list[int]], carried: list[list[int]]
) -> int:
    """Push along a shortest augmenting path; returns how much, 0 when there is none.

    Vertices: left nodes, then right nodes.
    """
    num_left = len(left_room)
    queue = [k for k, room in enumerate(left_room) if room > 0]
    parents = {k: k for k in queue}
    end = -1
    for v in queue:
        if v < num_left:
            for m, room in enumerate(right_room):
                if num_left + m not in parents and spare[v][m] > 0:
                    parents[num_left + m] = v
                    queue.append(num_left + m)
                    if room > 0:
                        end = num_left + m
                        break
        else:
            for k in range(num_left):
                if k not in parents and carried[k][v - num_left] > 0:
                    parents[k] = v
                    queue.append(k)
        if end >= 0:
            break
    if end < 0:
        return 0
    push, v = right_room[end - num_left], end
    while parents[v] != v:
        p = parents[v]
        push = min(push, spare[p][v - num_left] if v >= num_left else carried[v][p - num_left])
        v = p
    push = min(push, left_room[v])
    left_room[v] -= push
    right_room[end - num_left] -= push
    v = end
    while parents[v] != v:
        p = parents[v]
        k, m, change = (p, v - num_left, push) if v >= num_left else (v, p - num_left, -push)
        spare[k][m] -= change
        carried[k][m] += change
        v = p
    return push
