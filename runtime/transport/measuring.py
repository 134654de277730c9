"""Fills a link that nothing is sent over until it is known what it does, and gives way. Pure.

What fills it goes like prompts, in chunks that are acked, so that it is measured like any other.
"""

from runtime.protocol.data import MeasureOrder
from runtime.transport.link_pace import LinkPace
from runtime.transport.link_scheduler import LinkScheduler

FILLER_HEAD = b"HLF1"  # of a message that is for nobody
_PIECE_BYTES = 64 * 2**10
_FILLER = bytes(_PIECE_BYTES)
# Urgent messages that are larger are decodes; all else is as small as acks.
_TRAFFIC_BYTES = 4096


class Measuring:
    """Fills an unused link to find its rate; the lanes' thread calls it.

    One measurement of the link to `peer`, whose scheduler has nothing else to do.
    """

    def __init__(self, order: MeasureOrder, scheduler: LinkScheduler, *, now_s: float) -> None:
        self.peer = order.peer
        self.ends_s = now_s + order.most_s
        self._scheduler = scheduler
        self._left_bytes = order.most_bytes
        self._has_given_way = False
        scheduler.rate = LinkPace()  # what was known is old

    def on_traffic(self, n_bytes: int, *, is_prompt: bool) -> None:
        """So much was sent by this machine, over whichever link: it goes first."""
        self._has_given_way = self._has_given_way or is_prompt or n_bytes > _TRAFFIC_BYTES

    def fill(self, *, now_s: float) -> None:
        """Queue the next piece, if the last has been sent."""
        if not self.has_ended(now_s) and not self._scheduler.has_waiting:
            size = min(_PIECE_BYTES, self._left_bytes)
            self._left_bytes -= size
            self._scheduler.push(FILLER_HEAD, memoryview(_FILLER)[:size], is_filler=True)

    def has_ended(self, now_s: float) -> bool:
        """Whether no more is sent: the rate is known, traffic came, or it cost enough."""
        return (
            self._has_given_way
            or self._scheduler.rate.has_settled
            or self._left_bytes == 0
            or now_s >= self.ends_s
        )
