"""The coordinators that a stage serves: which there are, which live, what each has retired."""

import logging
from collections.abc import Iterable

from planner.domain.cluster import COORDINATOR
from runtime.protocol.coordinators import is_coordinator
from runtime.transport.heartbeats import Loss, PeerEvent

logger = logging.getLogger(__name__)

# A coordinator that answers no heartbeats for so long is not waited for, and its requests are
# forgotten. It may be only cut off from here, and restart them by itself before.
SILENT_AFTER_S = 30.0


class Coordinators:
    """Owns which coordinators a stage has and which live; the stage and its parts ask it.

    Times in seconds of one clock.

    One lives from when it is first heard of until its process has ended, or was silent for
    `SILENT_AFTER_S`; from then on only its heartbeats tell that it is back: what it said before
    may have lain here unread. Where no peers are named there is the first one.
    """

    def __init__(self, peers: Iterable[str]) -> None:
        self.names: tuple[str, ...] = (COORDINATOR,)
        self._living: set[str] = set()
        self._lost: set[str] = set()
        self._silent_at_s: dict[str, float] = {}  # when it counts as lost, unless it is heard
        self._retired: dict[int, set[str]] = {}  # by generation: who has nothing to do under it
        self.meet(peers)

    def meet(self, peers: Iterable[str]) -> None:
        """These are the peers of all generations from now on, stages among them."""
        self.names = tuple(sorted(filter(is_coordinator, peers))) or (COORDINATOR,)
        gone = self._living.difference(self.names)
        self._living -= gone
        self._lost |= gone

    @property
    def told(self) -> tuple[str, ...]:
        """Those that may hear what is said to all."""
        return tuple(name for name in self.names if name not in self._lost)

    @property
    def living(self) -> int:
        """How many there are, at least one."""
        return max(1, len(self._living))

    def is_lost(self, name: str) -> bool:
        """Whether nothing is to be begun for it: its process has ended, or so it seems."""
        return name in self._lost

    def hear(self, name: str) -> bool:
        """It says something; whether it had not been there before."""
        if name not in self.names or name in self._living or name in self._lost:
            return False
        self._living.add(name)
        return True

    def see(self, peer_event: PeerEvent, *, now_s: float) -> bool:
        """Take news of its process; whether it is there, and had not been before."""
        name = peer_event.peer
        if peer_event.loss is None:
            self._silent_at_s.pop(name, None)
            self._lost.discard(name)
            return self.hear(name)
        waits_s = 0.0 if peer_event.loss is Loss.ENDED else SILENT_AFTER_S
        self._silent_at_s[name] = min(now_s + waits_s, self._silent_at_s.get(name, float("inf")))
        return False

    def lose(self, *, now_s: float) -> list[str]:
        """Those that are lost from now on."""
        lost = [name for name, at_s in self._silent_at_s.items() if now_s >= at_s]
        for name in lost:
            del self._silent_at_s[name]
            self._living.discard(name)
            self._lost.add(name)
            logger.warning("the coordinator %r is lost; its requests are forgotten", name)
        return lost

    def retire(self, generation: int, *, by: str) -> None:
        """`by` has nothing more to do under it."""
        self._retired.setdefault(generation, set()).add(by)

    def is_retired(self, generation: int) -> bool:
        """Whether one has retired it, and all others that live."""
        by = self._retired.get(generation)
        return by is not None and self._living <= by

    def forget(self, generation: int) -> None:
        """It is served here no more."""
        self._retired.pop(generation, None)
