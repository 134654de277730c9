"""Which generations a stage serves: loads the layers of one more beside them, and retires them.

A plan is changed without a gap: requests go on under the old generation while layers that only the
new one has are read, by a thread of their own, into room that the KV cache gave up for them. When
nothing is left to do under the old one, its layers are forgotten and the cache grows again.
"""

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from typing import Protocol

from runtime.engine.backend import CannotRun
from runtime.engine.generation import Generation, Holdings, NoRoom, runs_of
from runtime.engine.pages import BlockTable, KvCacheManager
from runtime.protocol.control import PeerAddress, StageStats
from runtime.protocol.stage_pipe import (
    CannotAddEvent,
    LoadingEvent,
    ReadyEvent,
    RetiredEvent,
    StageEvent,
)

logger = logging.getLogger(__name__)

# Where the thread that reads layers shares a core with steps, they last a quarter longer meanwhile;
# with the same priority twice as long.
_NICER_BY = 5


class Host(Protocol):
    """The stage, as far as its generations are concerned."""

    def stats(self) -> StageStats: ...

    def tables(self) -> Iterable[BlockTable]:
        """All that hold pages."""

    def make_room(self, pages: int) -> None:
        """Have requests hold no more pages than so many; the youngest give way."""


class Hosting:
    """Owns the generations that a stage serves; the stage's loop calls it.

    `advance` is called between its steps. `orders`: generations to serve beside the others, from
    any thread; one that is still loading is given up for the next. `tell` gets what the agent must
    know, `meet` the peers of all generations when they change.
    """

    def __init__(
        self,
        first: Generation,
        *,
        host: Host,
        kv_manager: KvCacheManager,
        holdings: Holdings | None,
        orders: SimpleQueue[Generation],
        tell: Callable[[StageEvent], None],
        meet: Callable[[tuple[PeerAddress, ...]], None],
    ) -> None:
        self.ranges = {first.number: first.layers}
        self._hosted = {first.number: first}
        self._host = host
        self._kv_manager = kv_manager
        self._holdings = holdings
        self._tell = tell
        self._meet = meet
        self._orders = orders
        self._next: Generation | None = None  # ordered, while another one is being given up
        self._loading: _Loading | None = None

    def advance(self) -> bool:
        """Do what can be done now; whether generations or pages are others than before."""
        while True:
            try:
                self._next = self._orders.get_nowait()
            except Empty:
                break
        if self._loading is not None:
            if self._next is not None:
                self._loading.give_up()
            return self._loading.is_over and self._end_loading(self._loading)
        if self._next is None:
            return False
        generation, self._next = self._next, None
        return self._begin(generation)

    def retire(self, number: int) -> bool:
        """Serve it no more, none of whose requests is left; False: it is not served here.

        Layers of the last one stay for the next, or until the process ends.
        """
        if self._hosted.pop(number, None) is None:
            return False
        del self.ranges[number]
        logger.info("generation %d is retired", number)
        self._settle()
        self._tell(RetiredEvent(generation=number))
        return True

    def _begin(self, generation: Generation) -> bool:
        """Make room for the layers of one more, and load those that are missing; whether pages had
        to be given up."""
        holdings, kv_manager = self._holdings, self._kv_manager
        try:
            if holdings is None:
                raise NoRoom("ranks, and layers that the bridge runs, cannot be added to")
            wanted = [*self.ranges.values(), generation.layers]
            pages = holdings.pages_beside(wanted)
        except NoRoom as error:
            logger.warning("generation %d cannot be added: %s", generation.number, error)
            self._tell(
                CannotAddEvent(generation=generation.number, message=str(error), restart_helps=True)
            )
            return False
        holdings.keep(wanted)
        shrinks = pages < kv_manager.total
        if shrinks:
            logger.info("the KV cache shrinks from %d to %d pages", kv_manager.total, pages)
            self._host.make_room(pages)
            holdings.resize(pages, self._host.tables())
        missing = runs_of(set(generation.layers).difference(holdings.held))
        logger.info(
            "generation %d comes beside %s and lacks layers %s",
            generation.number,
            sorted(self._hosted),
            [(run.start, run.stop) for run in missing],
        )
        self._loading = _Loading(generation, missing, holdings, tell=self._tell)
        return shrinks

    def _end_loading(self, loading: "_Loading") -> bool:
        """Serve what was loaded, or give its room back."""
        self._loading = None
        generation, is_served = loading.generation, loading.put_into_place()
        if is_served:
            self._hosted[generation.number] = generation
            self.ranges[generation.number] = generation.layers
        self._settle()
        if is_served:
            self._tell(ReadyEvent(generation=generation.number, stats=self._host.stats()))
        elif loading.refusal is not None:
            self._tell(loading.refusal)
        return True

    def _settle(self) -> None:
        """Hold what the generations need that are here or come, and give the rest to the KV cache;
        know their peers."""
        generations = list(self._hosted.values())
        if self._loading is not None:
            generations.append(self._loading.generation)
        if self._holdings is None or not generations:
            return
        wanted = [generation.layers for generation in generations]
        self._holdings.keep(wanted)
        try:
            pages = self._holdings.pages_beside(wanted)
        except NoRoom as error:
            logger.warning("the KV cache stays as it is: %s", error)
        else:
            if pages > self._kv_manager.total:
                logger.info("the KV cache grows from %d to %d pages", self._kv_manager.total, pages)
                self._holdings.resize(pages, self._host.tables())
        oldest_first = sorted(generations, key=lambda each: each.number)
        peers = {peer.name: peer for generation in oldest_first for peer in generation.peers}
        self._meet(tuple(peers.values()))


class _GivenUp(Exception):
    """Another generation is wanted instead."""


class _Loading:
    """A thread that reads the layers a generation lacks."""

    def __init__(
        self,
        generation: Generation,
        missing: list[range],
        holdings: Holdings,
        *,
        tell: Callable[[StageEvent], None],
    ) -> None:
        self.generation = generation
        self.refusal: CannotAddEvent | None = None
        self._put: Callable[[], None] | None = None  # once they are read
        self._missing = missing
        self._holdings = holdings
        self._tell = tell
        self._given_up = threading.Event()
        self._thread = threading.Thread(target=self._load, name="loading layers", daemon=True)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        return not self._thread.is_alive()

    def give_up(self) -> None:
        """End it soon; nothing comes of it, if it has not ended yet."""
        self._given_up.set()

    def put_into_place(self) -> bool:
        """Once it is over; whether the layers are held then. If not, `refusal` may say why."""
        return self._put is not None and self._try(self._put)

    def _load(self) -> None:
        if sys.platform == "linux":  # elsewhere threads have no priority of their own
            thread = threading.get_native_id()
            nice = os.getpriority(os.PRIO_PROCESS, thread) + _NICER_BY
            os.setpriority(os.PRIO_PROCESS, thread, nice)
        self._try(self._read)

    def _read(self) -> None:
        self._put = self._holdings.load(self._missing, self._progress)

    def _try(self, act: Callable[[], None]) -> bool:
        try:
            act()
        except _GivenUp:
            logger.info("generation %d is given up", self.generation.number)
        except NoRoom as error:
            self._refuse(str(error), restart_helps=True)
        except (CannotRun, OSError) as error:
            self._refuse(str(error), restart_helps=False)
        except Exception as error:  # a fault here must not end the generations that are served
            logger.exception("loading layers failed")
            self._refuse(f"{type(error).__name__}: {error}", restart_helps=False)
        else:
            return True
        return False

    def _progress(self, done_bytes: int, total_bytes: int) -> None:
        if self._given_up.is_set():
            raise _GivenUp
        self._tell(
            LoadingEvent(
                generation=self.generation.number, done_bytes=done_bytes, total_bytes=total_bytes
            )
        )

    def _refuse(self, message: str, *, restart_helps: bool) -> None:
        logger.error("generation %d cannot be added: %s", self.generation.number, message)
        self.refusal = CannotAddEvent(
            generation=self.generation.number,
            message=" ".join(message.split()),
            restart_helps=restart_helps,
        )
