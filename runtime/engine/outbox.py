"""What a stage says to coordinators: its room, what it refuses, where time went."""

import logging
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Items

from runtime.engine.coordinators import Coordinators
from runtime.engine.intake import Refusal
from runtime.engine.pages import KvCacheManager
from runtime.engine.sequence import Sequence
from runtime.protocol.data import Entry, Flag, Kind, Message, StageStatus
from runtime.protocol.payloads import life_of
from runtime.protocol.stage_spans import StageSpans, pack_spans
from runtime.transport.base import SendError, Transport

logger = logging.getLogger(__name__)


class Outbox:
    """Owns what a stage sends to its coordinators; the stage and its parts call it.

    Over `transport`, of the process `incarnation`. A coordinator that cannot be told is logged
    once.
    """

    def __init__(
        self, transport: Transport, *, incarnation: int, coordinators: Coordinators
    ) -> None:
        self._transport = transport
        self.incarnation = incarnation
        self._coordinators = coordinators
        self._unheard: set[str] = set()

    def status(
        self,
        ranges: Mapping[int, range],
        kv_manager: KvCacheManager,
        *,
        elsewhere: Mapping[str, int],
    ) -> None:
        """That it serves the generations of `ranges`, and its room, which they share.

        `elsewhere`: the coordinators to be told, and how many pages each of them cannot have.
        """
        for coordinator, pages_elsewhere in elsewhere.items():
            for generation, layers in ranges.items():
                status = StageStatus(
                    incarnation=self.incarnation,
                    first=layers.start,
                    end=layers.stop,
                    page_tokens=kv_manager.page_tokens,
                    pages_total=kv_manager.total,
                    pages_used=kv_manager.used,
                    pages_elsewhere=pages_elsewhere,
                )
                message = Message(kind=Kind.STATUS, generation=generation, status=status)
                self._send(coordinator, message)

    def leaving(self, ranges: Iterable[int]) -> None:
        """That it ends soon and serves these generations, if they are not retired."""
        for generation in ranges:
            life = life_of(self.incarnation)
            self.everybody(Message(kind=Kind.LEAVING, generation=generation, payload=life))

    def refusals(self, refusals: Items[Refusal]) -> None:
        """Why requests cannot go on, to whom they belong; to all where that is not known."""
        for refusal in refusals:
            entry = refusal.entry._replace(reason=refusal.reason, flags=Flag.NONE, route=None)
            message = Message(kind=Kind.NACK, generation=refusal.generation, entries=(entry,))
            if refusal.coordinator is None:
                self.everybody(message)
            else:
                self._send(refusal.coordinator, message)

    def everybody(self, message: Message) -> None:
        """Say it to every coordinator there is."""
        for coordinator in self._coordinators.told:
            self._send(coordinator, message)

    def spans(self, sequence: Sequence, spans: StageSpans) -> None:
        """What was measured of a request."""
        self._send(
            sequence.route.coordinator,
            Message(
                kind=Kind.TRACE,
                generation=sequence.generation,
                entries=(entry_of(sequence),),
                payload=pack_spans(spans),
            ),
        )

    def _send(self, coordinator: str, message: Message) -> None:
        try:
            self._transport.send(coordinator, message)
        except SendError as error:
            if coordinator not in self._unheard:
                logger.error("%r hears nothing of this stage: %s", coordinator, error)
            self._unheard.add(coordinator)
        else:
            self._unheard.discard(coordinator)


def entry_of(sequence: Sequence) -> Entry:
    """What is said of a request: how far it got here."""
    return Entry(
        request=sequence.key.request,
        epoch=sequence.key.epoch,
        position=sequence.done,
        n_tokens=0,
        hop=sequence.hop,
    )
