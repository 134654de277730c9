"""When a stage tells of itself: its room to coordinators, its counters to the agent.

Both at every interval; the room at once when requests took pages or gave some back, and the
counters sooner when what is measured of links changes.
"""

from collections.abc import Callable

from runtime.protocol.control import LinkStats, StageStats
from runtime.protocol.link_news import LOOK_EVERY_S, LinkNews


class Reporting:
    """Owns when a stage reports; the stage's loop calls it.

    `tell_room` tells coordinators; `on_report` gets what `stats` says, every `interval_s` of
    `clock`, in seconds. `tidy_up` is called as often, before.
    """

    def __init__(
        self,
        *,
        interval_s: float,
        tell_room: Callable[[], None],
        tidy_up: Callable[[], None],
        stats: Callable[[], StageStats],
        link_stats: Callable[[], dict[str, LinkStats]],
        on_report: Callable[[StageStats], None],
        clock: Callable[[], float],
    ) -> None:
        self._interval_s = interval_s
        self._tell_room = tell_room
        self._tidy_up = tidy_up
        self._stats = stats
        self._link_stats = link_stats
        self._on_report = on_report
        self._clock = clock
        self._next_s = self._next_look_s = clock()  # look: at the links
        self._link_news = LinkNews()
        self._told_pages = -1

    @property
    def due_in_s(self) -> float:
        """Until the next; below 0 when that is late."""
        return self._next_s - self._clock()

    def hurry(self) -> None:
        """Coordinators wait for it."""
        self._next_s = self._clock()

    def tell(self, *, pages_used: int, has_work: bool) -> None:
        """What is to be told now, if anything is."""
        self._tell_when_due(pages_used=pages_used, has_work=has_work)
        self._tell_of_links_that_changed()

    def _tell_when_due(self, *, pages_used: int, has_work: bool) -> None:
        now_s = self._clock()
        due = now_s >= self._next_s
        idle_with_news = pages_used != self._told_pages and not has_work
        if not due and not idle_with_news:
            return
        self._told_pages = pages_used
        self._tell_room()
        if due:
            self._next_s = now_s + self._interval_s
            self._tidy_up()
            stats = self._stats()
            self._link_news.told(stats.links)
            self._on_report(stats)

    def _tell_of_links_that_changed(self) -> None:
        now_s = self._clock()
        if now_s < self._next_look_s:
            return
        self._next_look_s = now_s + LOOK_EVERY_S
        if self._link_news.take(self._link_stats(), now_s=now_s):
            self._on_report(self._stats())
