"""How far the monotonic clocks of nodes are from the coordinator's, by the exchanges there are."""

from collections import defaultdict, deque
from dataclasses import dataclass

EXCHANGES_KEPT = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A question and its answer; `heard_s` and `told_s` on the node's clock."""

    asked_s: float
    heard_s: float
    told_s: float
    answered_s: float

    @property
    def rtt_s(self) -> float:
        """Time under way, both ways together."""
        return (self.answered_s - self.asked_s) - (self.told_s - self.heard_s)

    @property
    def offset_s(self) -> float:
        """The node's clock minus ours, were both ways equally long; off by at most rtt_s / 2."""
        return ((self.heard_s - self.asked_s) + (self.told_s - self.answered_s)) / 2


class ClockOffsets:
    """The last exchanges of every node; the quickest of them says most (RFC 5905 §10)."""

    def __init__(self) -> None:
        self._exchanges: dict[str, deque[Exchange]] = defaultdict(
            lambda: deque(maxlen=EXCHANGES_KEPT)
        )

    def add(self, node: str, exchange: Exchange) -> None:
        self._exchanges[node].append(exchange)

    def forget(self, node: str) -> None:
        """Its stage was started anew, perhaps with its machine and clock."""
        self._exchanges.pop(node, None)

    def of(self, node: str) -> float:
        """The node's clock minus ours in seconds. Raises KeyError before the first exchange."""
        if node not in self._exchanges:
            raise KeyError(f"the clock of {node!r} was never compared with ours")
        return min(self._exchanges[node], key=lambda exchange: exchange.rtt_s).offset_s
