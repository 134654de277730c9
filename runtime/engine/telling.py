"""What a stage says to the coordinator: its room, what it refuses, where time went."""

import logging
from collections.abc import Mapping
from collections.abc import Sequence as Items
from dataclasses import replace

from planner.domain.cluster import COORDINATOR
from runtime.engine.intake import Refusal
from runtime.engine.pages import PageBooks
from runtime.engine.sequence import Sequence
from runtime.protocol.data import Entry, Flag, Kind, Message, StageStatus
from runtime.protocol.stage_spans import StageSpans, pack_spans
from runtime.transport.base import SendError, Transport

logger = logging.getLogger(__name__)


class Telling:
    """Over `transport`, of the process `incarnation`. A coordinator that is lost is logged once."""

    def __init__(self, transport: Transport, *, incarnation: int) -> None:
        self._transport = transport
        self._incarnation = incarnation
        self._is_lost = False

    def status(self, ranges: Mapping[int, range], books: PageBooks) -> None:
        """That it serves the generations of `ranges`, and its room, which they share."""
        for generation, layers in ranges.items():
            self._send(
                Message(
                    kind=Kind.STATUS,
                    generation=generation,
                    status=StageStatus(
                        incarnation=self._incarnation,
                        first=layers.start,
                        end=layers.stop,
                        page_tokens=books.page_tokens,
                        pages_total=books.total,
                        pages_used=books.used,
                    ),
                )
            )

    def refusals(self, refusals: Items[Refusal]) -> None:
        """Why requests cannot go on."""
        for refusal in refusals:
            entry = replace(refusal.entry, reason=refusal.reason, flags=Flag.NONE, route=None)
            self._send(Message(kind=Kind.NACK, generation=refusal.generation, entries=(entry,)))

    def spans(self, sequence: Sequence, spans: StageSpans) -> None:
        """What was measured of a request."""
        self._send(
            Message(
                kind=Kind.TRACE,
                generation=sequence.generation,
                entries=(entry_of(sequence),),
                payload=pack_spans(spans),
            )
        )

    def _send(self, message: Message) -> None:
        try:
            self._transport.send(COORDINATOR, message)
        except SendError as error:
            if not self._is_lost:
                logger.error("the coordinator hears nothing of this stage: %s", error)
            self._is_lost = True
        else:
            self._is_lost = False


def entry_of(sequence: Sequence) -> Entry:
    """What is said of a request: how far it got here."""
    return Entry(
        request=sequence.key.request,
        epoch=sequence.key.epoch,
        position=sequence.done,
        n_tokens=0,
        hop=sequence.hop,
    )
