"""How far the monotonic clocks of nodes are from the coordinator's, by the exchanges there are."""

import statistics
from collections import defaultdict, deque
from dataclasses import dataclass

EXCHANGES_KEPT = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A question and its answer; `heard_s` and `told_s` on the node's clock.

    The question may have lain at the node for up to `unseen_s` before it was heard, while a step
    ran; the coordinator takes in answers at once.
    """

    asked_s: float
    heard_s: float
    unseen_s: float
    told_s: float
    answered_s: float

    @property
    def rtt_s(self) -> float:
        """Time under way, both ways together; at most, as it includes the time unseen."""
        return (self.answered_s - self.asked_s) - (self.told_s - self.heard_s)

    @property
    def least_rtt_s(self) -> float:
        """What is certain of it."""
        return max(0.0, self.rtt_s - self.unseen_s)

    @property
    def least_offset_s(self) -> float:
        """The node's clock minus ours is at least this: no answer comes before it was told."""
        return self.told_s - self.answered_s


class ClockOffsets:
    """Owns how far the clocks of stages are from ours; the tracer calls it.

    The last exchanges of every node.
    """

    def __init__(self) -> None:
        self._exchanges: dict[str, deque[Exchange]] = defaultdict(
            lambda: deque(maxlen=EXCHANGES_KEPT)
        )

    def add(self, node: str, exchange: Exchange) -> None:
        self._exchanges[node].append(exchange)

    def forget(self, node: str) -> None:
        """Its stage was restarted, perhaps with its machine and clock."""
        self._exchanges.pop(node, None)

    def of(self, node: str) -> float:
        """The node's clock minus ours in seconds. Raises KeyError before the first exchange.

        What the quickest answer leaves possible, and half the usual round trip, taking both ways
        for equally long.
        """
        if node not in self._exchanges:
            raise KeyError(f"the clock of {node!r} was never compared with ours")
        exchanges = self._exchanges[node]
        usual_s = statistics.median(exchange.least_rtt_s for exchange in exchanges)
        quickest_s = min(exchange.rtt_s for exchange in exchanges)
        least_s = max(exchange.least_offset_s for exchange in exchanges)
        return least_s + max(0.0, min(usual_s, quickest_s)) / 2
