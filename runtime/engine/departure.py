"""How a stage that was told to end leaves: its requests go on elsewhere first.

It says to coordinators that it leaves until they have retired all that it serves, or its time is
over; without requests it waits only until coordinators had the time to hear of it.
"""

import logging
from collections.abc import Callable

logger = logging.getLogger(__name__)

_AGAIN_S = 0.2
_HEARD_WITHIN_S = 2.0


class Departure:
    """Owns how a stage leaves after SIGTERM; the stage's loop asks it.

    Times in seconds of `clock`. `is_wanted` says whether the stage was told to end.
    """

    def __init__(
        self, is_wanted: Callable[[], bool], *, within_s: float, clock: Callable[[], float]
    ) -> None:
        self.is_wanted = is_wanted
        self._within_s = within_s
        self._clock = clock
        self._began_s: float | None = None
        self._held_s = 0.0  # when a request was last held here
        self._next_said_s = 0.0

    def is_over(self, *, serves: bool, holds: bool) -> bool:
        """Whether the stage, which `serves` a generation or none and `holds` requests or none, may
        end now."""
        if not self.is_wanted():
            return False
        now_s = self._clock()
        if self._began_s is None:
            logger.info("leaving: requests go on elsewhere first")
            self._began_s = self._held_s = now_s
        if holds:
            self._held_s = now_s
        is_idle = now_s - self._held_s >= _HEARD_WITHIN_S
        return not serves or is_idle or now_s - self._began_s >= self._within_s

    def is_to_be_said(self) -> bool:
        """Whether coordinators are to be told (again) that it leaves; asked once each time."""
        now_s = self._clock()
        if not self.is_wanted() or now_s < self._next_said_s:
            return False
        self._next_said_s = now_s + _AGAIN_S
        return True
