"""What a stage owes its coordinators: its room, refusals, what was measured of requests, an end of
what they retired, and of those that are lost."""

import logging
from collections.abc import Callable, Iterable

from runtime.engine.coordinators import Coordinators
from runtime.engine.hosting import Hosting
from runtime.engine.intake import Intake, Refusal
from runtime.engine.outbox import Outbox, entry_of
from runtime.engine.pages import KvCacheManager
from runtime.engine.sequence import RequestKey, Sequence
from runtime.engine.shares import Shares
from runtime.protocol.data import Entry, Flag, Message, Reason
from runtime.protocol.payloads import LIFE_BYTES, life_of
from runtime.transport.heartbeats import PeerEvent

logger = logging.getLogger(__name__)


class CoordinatorDuties:
    """Owns what a stage owes its coordinators; the stage's loop calls it.

    Acts on what `coordinators` knows; the parts are the stage's.
    """

    def __init__(
        self,
        coordinators: Coordinators,
        *,
        shares: Shares,
        outbox: Outbox,
        intake: Intake,
        hosting: Hosting,
        kv_manager: KvCacheManager,
        clock: Callable[[], float],
    ) -> None:
        self._coordinators = coordinators
        self._shares = shares
        self._outbox = outbox
        self._intake = intake
        self._running_requests = intake.running_requests
        self._hosting = hosting
        self._kv_manager = kv_manager
        self._clock = clock

    def tell_room(self) -> None:
        """Which generations there are, and how many pages for whom."""
        elsewhere = self._shares.elsewhere(self._coordinators.told, total=self._kv_manager.total)
        self._outbox.status(self._hosting.ranges, self._kv_manager, elsewhere=elsewhere)

    def refuse(self, refusals: list[Refusal]) -> None:
        """Together with the room there is, where another coordinator may have taken it."""
        is_full = any(refusal.reason is Reason.NO_KV_PAGES for refusal in refusals)
        if is_full and self._coordinators.living > 1:
            self.tell_room()
        self._outbox.refusals(refusals)

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
        self._outbox.refusals(refusals)

    def give_up(self, sequences: Iterable[Sequence], reason: Reason) -> None:
        """Forget these requests, which are here, and say why."""
        for sequence in sequences:
            self.end([entry_of(sequence)], reason, generation=sequence.generation)

    def tell_spans(self, entries: Iterable[Entry], *, heard_s: float, unseen_s: float) -> None:
        """What was measured of requests that end, to those who ask."""
        for entry in entries:
            key = RequestKey(request=entry.request, epoch=entry.epoch)
            sequence = self._running_requests.by_key.get(key)
            if sequence is not None and Flag.TRACED in entry.flags:
                now_s = self._clock()
                spans = sequence.spans.told(heard_s=heard_s, unseen_s=unseen_s, now_s=now_s)
                self._outbox.spans(sequence, spans)

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
        generation, life = message.generation, bytes(message.payload)
        if message.entries or len(life) not in (0, LIFE_BYTES):
            logger.warning("a damaged RETIRE of generation %d: it carries more", generation)
            return False
        if life and life != life_of(self._outbox.incarnation):
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
