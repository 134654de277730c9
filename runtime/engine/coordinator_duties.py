"""What a stage owes its coordinators: its room, refusals, what was measured of requests, an end of
what they retired, and of those that are lost."""

import logging
from collections.abc import Callable, Iterable

from runtime.engine.coordinators import Coordinators
from runtime.engine.hosting import Hosting
from runtime.engine.intake import Intake, Refusal
from runtime.engine.pages import KvCacheManager
from runtime.engine.sequence import RequestKey, Sequence
from runtime.engine.shares import Shares
from runtime.protocol.data import Entry, Flag, Kind, Message, Reason, StageStatus
from runtime.protocol.stage_spans import pack_spans
from runtime.transport.base import SendError, Transport
from runtime.transport.heartbeats import PeerEvent

logger = logging.getLogger(__name__)


class CoordinatorDuties:
    """Owns what a stage owes its coordinators; the stage's loop calls it.

    Acts on what `coordinators` knows, and sends over `transport`, of the process `incarnation`; the
    parts are the stage's. A coordinator that cannot be reached is logged once.
    """

    def __init__(
        self,
        coordinators: Coordinators,
        *,
        transport: Transport,
        incarnation: int,
        shares: Shares,
        intake: Intake,
        hosting: Hosting,
        kv_manager: KvCacheManager,
        clock: Callable[[], float],
    ) -> None:
        self._coordinators = coordinators
        self._transport = transport
        self._incarnation = incarnation
        self._shares = shares
        self._intake = intake
        self._running_requests = intake.running_requests
        self._hosting = hosting
        self._kv_manager = kv_manager
        self._clock = clock
        self._unheard: set[str] = set()

    def tell_room(self) -> None:
        """Which generations there are, and how many pages for which coordinator."""
        kv_manager = self._kv_manager
        elsewhere = self._shares.elsewhere(self._coordinators.told, total=kv_manager.total)
        for coordinator, pages_elsewhere in elsewhere.items():
            for generation, layers in self._hosting.ranges.items():
                status = StageStatus(
                    incarnation=self._incarnation,
                    first=layers.start,
                    end=layers.stop,
                    page_tokens=kv_manager.page_tokens,
                    pages_total=kv_manager.total,
                    pages_used=kv_manager.used,
                    pages_elsewhere=pages_elsewhere,
                )
                message = Message(kind=Kind.STATUS, generation=generation, status=status)
                self._send(coordinator, message)

    def leave(self) -> None:
        """Report that the stage ends soon, under each generation that is not retired."""
        for generation in self._hosting.ranges:
            message = Message(kind=Kind.LEAVING, generation=generation, life=self._incarnation)
            for coordinator in self._coordinators.told:
                self._send(coordinator, message)

    def refuse(self, refusals: list[Refusal]) -> None:
        """Together with the room there is, where another coordinator may have taken it."""
        is_full = any(refusal.reason is Reason.NO_KV_PAGES for refusal in refusals)
        if is_full and self._coordinators.living > 1:
            self.tell_room()
        self._send_refusals(refusals)

    def end(self, entries: Iterable[Entry], reason: Reason, *, generation: int) -> None:
        """Forget these requests and say why."""
        refusals = []
        for entry in entries:
            key = RequestKey(request=entry.request, epoch=entry.epoch)
            sequence = self._running_requests.by_key.get(key)
            owner = None if sequence is None else sequence.route.coordinator
            refusals.append(
                Refusal(entry=entry, reason=reason, generation=generation, coordinator=owner)
            )
            self._intake.end(key)
        self._send_refusals(refusals)

    def give_up(self, sequences: Iterable[Sequence], reason: Reason) -> None:
        """Forget these requests, which are here, and say why."""
        for sequence in sequences:
            self.end([_entry_of(sequence)], reason, generation=sequence.generation)

    def tell_spans(self, entries: Iterable[Entry], *, heard_s: float, unseen_s: float) -> None:
        """What was measured of requests that end, to those who ask."""
        for entry in entries:
            key = RequestKey(request=entry.request, epoch=entry.epoch)
            sequence = self._running_requests.by_key.get(key)
            if sequence is not None and Flag.TRACED in entry.flags:
                now_s = self._clock()
                spans = sequence.spans.told(heard_s=heard_s, unseen_s=unseen_s, now_s=now_s)
                message = Message(
                    kind=Kind.TRACE,
                    generation=sequence.generation,
                    entries=(_entry_of(sequence),),
                    payload=pack_spans(spans),
                )
                self._send(sequence.route.coordinator, message)

    def hear(self, peer_events: Iterable[PeerEvent], *, now_s: float) -> bool:
        """Forget the requests of coordinators that are lost: should one come back, they restart.

        Whether there is something to report: one has come, or a generation has gone.
        """
        is_news = self._lose(now_s=now_s)
        for peer_event in peer_events:
            is_news |= self._coordinators.see(peer_event, now_s=now_s)
            is_news |= self._lose(now_s=now_s)  # before the next says that it is back
        return is_news

    def _lose(self, *, now_s: float) -> bool:
        is_news = False
        for lost in self._coordinators.lose(now_s=now_s):
            self._shares.forget(lost)
            running_requests = list(self._running_requests.by_key.values())
            its_own = (one for one in running_requests if one.route.coordinator == lost)
            self.give_up(its_own, Reason.PREEMPTED)
            for generation in list(self._hosting.ranges):
                is_news |= self._end_if_retired(generation)
        return is_news

    def retire(self, message: Message, *, sender: str) -> bool:
        """A coordinator has nothing more to do under a generation; unknown: it was heard before.

        One for the process that was here before, and left, is not for this one. Whether it is
        served no more now.
        """
        generation = message.generation
        if message.entries or memoryview(message.payload).nbytes:
            logger.warning("a damaged RETIRE of generation %d: it carries more", generation)
            return False
        if message.life not in (None, self._incarnation):
            return False
        if generation not in self._hosting.ranges:
            return False
        self._intake.end_generation(generation, coordinator=sender)
        self._coordinators.retire(generation, by=sender)
        return self._end_if_retired(generation)

    def _end_if_retired(self, generation: int) -> bool:
        """As soon as no coordinator has anything to do under it."""
        if not self._coordinators.is_retired(generation):
            return False
        running_requests = self._running_requests.by_key.values()
        if any(sequence.generation == generation for sequence in running_requests):
            return False
        self._coordinators.forget(generation)
        return self._hosting.retire(generation)

    def _send_refusals(self, refusals: list[Refusal]) -> None:
        """To the coordinators of the requests; to all where that is not known."""
        for refusal in refusals:
            entry = refusal.entry._replace(reason=refusal.reason, flags=Flag.NONE, route=None)
            message = Message(kind=Kind.NACK, generation=refusal.generation, entries=(entry,))
            owner = refusal.coordinator
            for coordinator in self._coordinators.told if owner is None else (owner,):
                self._send(coordinator, message)

    def _send(self, coordinator: str, message: Message) -> None:
        try:
            self._transport.send(coordinator, message)
        except SendError as error:
            if coordinator not in self._unheard:
                logger.error("%r hears nothing of this stage: %s", coordinator, error)
            self._unheard.add(coordinator)
        else:
            self._unheard.discard(coordinator)


def _entry_of(sequence: Sequence) -> Entry:
    """What is said of a request: how far it got here."""
    return Entry(
        request=sequence.key.request,
        epoch=sequence.key.epoch,
        position=sequence.done,
        n_tokens=0,
        hop=sequence.hop,
    )
