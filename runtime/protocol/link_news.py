"""When what is measured of links is told sooner than all else that is reported. Pure.

A rate that changes is told while it does, so that whoever routes by it need not wait for the next
report; not so often, however, that links whose rates never rest would make reports cost more.
"""

from collections.abc import Mapping

from runtime.protocol.control import LinkStats

_CHANGED = 0.05  # half of what an estimate may be wrong by
_MOST_AT_ONCE = 10.0  # a fall or a rise takes fewer
_EVERY_S = 10.0  # one more, in the long run


class LinkNews:
    """Decides when changed link rates are reported early; the agent asks it.

    Keeps what was told last of the links of one process, by the peer sent to.
    """

    def __init__(self) -> None:
        self._told: dict[str, float] = {}  # bytes/s
        self._left = _MOST_AT_ONCE
        self._counted_s = 0.0

    def told(self, links: Mapping[str, LinkStats]) -> None:
        """A report had these."""
        self._told = {
            peer: stats.bandwidth_bytes_per_s
            for peer, stats in links.items()
            if stats.bandwidth_bytes_per_s is not None
        }

    def take(self, links: Mapping[str, LinkStats], *, now_s: float) -> bool:
        """Whether these are to be told now; they count as told then."""
        if not any(self._is_news(peer, stats) for peer, stats in links.items()):
            return False
        gained = (now_s - self._counted_s) / _EVERY_S
        self._left, self._counted_s = min(_MOST_AT_ONCE, self._left + gained), now_s
        if self._left < 1:
            return False
        self._left -= 1
        self.told(links)
        return True

    def _is_news(self, peer: str, stats: LinkStats) -> bool:
        rate, before = stats.bandwidth_bytes_per_s, self._told.get(peer)
        if rate is None:
            return False
        return before is None or abs(rate - before) > _CHANGED * before
