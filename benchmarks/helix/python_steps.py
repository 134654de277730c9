"""Steps of the engine in Python: what waits at nodes, what a step takes of it, how long it lasts.

A node's layers are cut into segments wherever requests may enter. It runs one step at a time, with
items of one segment, by turns; what has run one waits for the next.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence

from benchmarks.helix.python_links import Foresee
from benchmarks.helix.python_pages import PythonPages, is_gone
from benchmarks.helix.python_state import STEP_DONE, Item, Node, Queue, averaged, seconds_of
from planner.simulator.engine import OWN_STEPS, EngineSetup


class PythonSteps:
    """Fills and ends the steps of `nodes`; `foresee` is told when one will be done."""

    def __init__(
        self,
        setup: EngineSetup,
        nodes: Sequence[Node],
        *,
        pages: PythonPages,
        clock: Callable[[], float],
        foresee: Foresee,
    ) -> None:
        self._setup, self._nodes, self._pages = setup, nodes, pages
        self._clock, self._foresee = clock, foresee
        self._order = 0  # in which items began to wait

    def add(self, node: Node, item: Item) -> None:
        """The item has arrived at the node, where it waits at its stage's first segment."""
        self._came_back(node, item)
        self._wait(node.queues[item.request.stages[item.stage].segment], item)
        node.waiting += 1

    def start(self, number: int) -> None:
        """Take what waits at the next segment that has something, unless the node is busy."""
        node = self._nodes[number]
        if node.batch:
            return
        prompt_tokens = decodes = 0
        while not node.batch:  # for all that waits at a segment may have lost its pages
            if not node.waiting:
                return
            prompt_tokens, decodes = self._next_batch(node, number)
        position = node.position
        prompt_s = seconds_of(node.setup.prompt, prompt_tokens)
        # A small chunk costs no less than the fewest decodes.
        least = node.setup.least_decodes
        decode_s = seconds_of(node.setup.decode, max(decodes, least)) if decodes else 0.0
        if self._setup.chunk_tokens and prompt_tokens and not decodes:
            prompt_s = max(prompt_s, seconds_of(node.setup.decode, least))
        shared_s = node.setup.shared_s if prompt_tokens and decodes else 0.0
        duration = node.setup.segment_layers[position] * (prompt_s + decode_s - shared_s)
        if position == 0:
            duration += node.copied_tokens * self._setup.copy_s_per_token
            node.copied_tokens = 0
        duration += self._setup.overhead_s
        now = self._clock()
        node.has_decodes = decodes > 0
        node.busy_since = node.began_s = now
        node.busy_until = now + duration
        self._foresee(node.busy_until, STEP_DONE, number)
        node.steps += 1
        node.decode_steps += decodes > 0
        node.decodes += decodes
        node.decodes_squared += decodes * decodes
        node.decodes_resident += decodes * node.resident
        node.prompt_tokens += prompt_tokens

    def end(self, number: int) -> list[Item]:
        """Of the step that is done, what has passed the node's last segment; all else waits on."""
        node, now = self._nodes[number], self._clock()
        node.account(now)
        node.account_busy(now)
        batch, node.batch = node.batch, []
        if node.has_decodes:
            node.step_s = averaged(node.step_s, node.busy_until - node.began_s)
        if node.position + 1 == len(node.queues):
            return batch
        for item in batch:
            self._wait(node.queues[node.position + 1], item)
        node.waiting += len(batch)
        return []

    def _next_batch(self, node: Node, number: int) -> tuple[int, int]:
        """(prompt tokens, decodes) from the next segment that has something."""
        segments = len(node.queues)
        position = node.position
        for offset in range(1, segments + 1):
            position = (node.position + offset) % segments
            if node.queues[position].prompts or node.queues[position].decodes:
                break
        node.position = position
        return self._take(node, number)

    def _take(self, node: Node, number: int) -> tuple[int, int]:
        """Fill the step from the queue in order; (prompt tokens, decodes) taken."""
        setup, now = self._setup, self._clock()
        node.account(now)
        decode_limit = node.setup.decode_limit
        micro_batches = self._micro_batches(node)
        if micro_batches > 0:
            cap = max(setup.cap_floor, math.ceil(node.resident / micro_batches))
            decode_limit = min(decode_limit, cap)
        prompt_tokens = prompts = decodes = 0
        queue = node.queues[node.position]
        while True:
            prompt = _first_of(node, queue.prompts)
            decode = _first_of(node, queue.decodes) if decodes < decode_limit else None
            # No later prompt passes one that does not fit: chunks must stay in order.
            if prompt is not None and (
                prompts == node.setup.prompt_limit
                or (setup.chunk_tokens and prompt_tokens + prompt.tokens > setup.chunk_tokens)
            ):
                prompt = None
            if prompt is not None and (decode is None or prompt.order < decode.order):
                prompts += 1
                prompt_tokens += prompt.tokens
                node.batch.append(queue.prompts.popleft())
            elif decode is not None:
                decodes += 1
                node.batch.append(queue.decodes.popleft())
            else:
                break
        if setup.measures_waits:
            for item in node.batch:
                item.request.stays[item.stage].waited_s += now
        node.waiting -= len(node.batch)
        self._pages.make_room(node, number)
        gone = [item for item in node.batch if is_gone(item)]
        if gone:
            node.batch = [item for item in node.batch if not is_gone(item)]
            prompt_tokens -= sum(item.tokens for item in gone)
            decodes -= sum(not item.tokens for item in gone)
        return prompt_tokens, decodes

    def _micro_batches(self, node: Node) -> float:
        """M: what the policy says, or what the node has measured; 0 as long as there is none."""
        most = self._setup.most_micro_batches
        if not most:
            return self._setup.cap_divisor
        if node.step_s is None or node.away_s is None or node.step_s <= 0:
            return 0.0
        return min(max(node.away_s / node.step_s + OWN_STEPS, 1.0), most)

    def _came_back(self, node: Node, item: Item) -> None:
        """A decode has arrived where its request was before: how long was it away?"""
        left_s = item.request.stays[item.stage].left_s
        if not item.tokens and left_s is not None:
            node.away_s = averaged(node.away_s, self._clock() - left_s)

    def _wait(self, queue: Queue, item: Item) -> None:
        self._order += 1
        item.order = self._order
        if self._setup.measures_waits and not is_gone(item):
            item.request.stays[item.stage].waited_s -= self._clock()
        (queue.prompts if item.tokens else queue.decodes).append(item)


def _first_of(node: Node, queue: deque[Item]) -> Item | None:
    """The first that waits; those of requests that lost their pages are dropped."""
    while queue and is_gone(queue[0]):
        queue.popleft()
        node.waiting -= 1
    return queue[0] if queue else None
