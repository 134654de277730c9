"""Tries the ports of other processes that the site names, and measures the links to them."""

import asyncio
import itertools
import logging
import random
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from runtime.link_measuring import CannotMeasure, LinkAnswers, measure_link
from runtime.protocol.endpoints import Place, parse_endpoint
from runtime.protocol.ports import is_held
from runtime.protocol.reach import LinksToMeasure, MeasuredLink, Reach, digest_of
from runtime.tasks import within

logger = logging.getLogger(__name__)

WITHIN_S = 2.0
ALL_AGAIN_S = 20.0
FAILING_AGAIN_S = 2.0
# As many are tried at once, and as many of those that work are tried again every 20 s.
_AT_ONCE = 64
REFUSED = "nothing listens there"
# So long a port is open before its process says so: others that were refused have tried again.
LISTENS_AFTER_S = 3 * FAILING_AGAIN_S
BUSY_AGAIN_S = 1.0
_MOST_BUSY_AGAIN_S = 20.0


class Reaching:
    """Owns which data ports of others are reachable; agent and coordinator run it.

    What this process reaches. `run` it in the event loop that makes all other calls.
    """

    def __init__(
        self,
        *,
        own_endpoint: str,
        on_change: Callable[[], None],
        may_measure: Callable[[], bool] = lambda: False,
        answers: LinkAnswers | None = None,
        weights_port: int | None = None,
    ) -> None:
        """`own_endpoint` is the one that others dial; `on_change` when `state` differs.

        `may_measure`: False while requests run here. `answers` gets the key by which it knows
        others that measure. At `weights_port` this process serves weights.
        """
        self._own_port = parse_endpoint(own_endpoint).port
        self._on_change = on_change
        self._may_measure = may_measure
        self._answers = answers
        self._weights_port = weights_port
        self._rng = random.Random()  # noqa: S311 - order and jitter, not a secret
        self._listens_since_s: float | None = None
        self._tried = Reach()
        self._wanted: tuple[str, ...] = ()
        self._is_wanted = asyncio.Event()
        self._at_once = asyncio.Semaphore(_AT_ONCE)
        self._to_measure: LinksToMeasure | None = None
        self._is_to_measure = asyncio.Event()
        self._measured: dict[str, MeasuredLink] = {}

    @property
    def state(self) -> Reach:
        """What is known now."""
        since_s = self._listens_since_s
        return self._tried.model_copy(
            update={
                "listens": since_s is not None and time.monotonic() - since_s >= LISTENS_AFTER_S,
                "measures": self._may_measure(),
                "answers": self._answers is not None,
                "weights_port": self._weights_port,
                "measured": dict(self._measured),
            }
        )

    def want(
        self, endpoints: tuple[str, ...] | None, to_measure: LinksToMeasure | None = None
    ) -> None:
        """Try and measure these from now on; None: those that were wanted before."""
        if endpoints is not None and endpoints != self._wanted:
            self._wanted = endpoints
            self._is_wanted.set()
        if to_measure is not None and to_measure != self._to_measure:
            self._to_measure = to_measure
            asked = set(to_measure.endpoints)
            self._measured = {one: link for one, link in self._measured.items() if one in asked}
            if self._answers is not None:
                self._answers.key = to_measure.key
            self._is_to_measure.set()

    def note_listening(self, listens: bool) -> None:
        """Record whether a stage, or what `answers`, listens at the own data port."""
        if listens != (self._listens_since_s is not None):
            self._listens_since_s = time.monotonic() if listens else None
            self._on_change()

    async def run(self) -> None:
        """Try and measure all that is wanted, forever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._try_forever())
            tasks.create_task(self._measure_forever())

    async def _try_forever(self) -> None:
        """What is new at once, then a part three times a minute; what fails every other second, 64
        at a time."""
        whys: dict[str, str] = {}
        place, part_at = 0, 0.0
        while True:
            self._is_wanted.clear()
            wanted, now = self._wanted, time.monotonic()
            tried = digest_of(wanted)
            if tried != self._tried.tried:
                known = {one: whys[one] for one in wanted if one in whys}
                whys = known | await self._tried_now(one for one in wanted if one not in known)
                place, part_at = 0, part_at if known else now + ALL_AGAIN_S
            elif now >= part_at:
                part = wanted[place : place + _AT_ONCE]
                whys |= await self._tried_now(part)
                place = place + _AT_ONCE if place + _AT_ONCE < len(wanted) else 0
                part_at = now + ALL_AGAIN_S
            else:
                again = list(itertools.islice(_failing(whys), _AT_ONCE))
                whys = {one: why for one, why in whys.items() if one not in again}
                whys |= await self._tried_now(again)  # at the end: then it is the others' turn
            failing = _failing(whys)
            refused = tuple(sorted(one for one, why in failing.items() if why == REFUSED))
            broken = {one: why for one, why in failing.items() if why != REFUSED}
            state = Reach(tried=tried, failing=broken, refused=refused)
            if state != self._tried:
                self._tried = state
                self._on_change()
            await within(FAILING_AGAIN_S if failing else ALL_AGAIN_S, self._is_wanted.wait())

    async def _tried_now(self, endpoints: Iterable[str]) -> dict[str, str]:
        each = list(endpoints)
        return dict(zip(each, await asyncio.gather(*map(self._try, each)), strict=True))

    async def _try(self, endpoint: str) -> str:
        async with self._at_once:
            return await why_unreachable(endpoint, own_port=self._own_port)

    async def _measure_forever(self) -> None:
        """One after the other; what is busy has another turn after the others."""
        wait_s = BUSY_AGAIN_S
        while True:
            self._is_to_measure.clear()
            wanted = self._to_measure
            asked = () if wanted is None else wanted.endpoints
            left = [one for one in asked if one not in self._measured]
            self._rng.shuffle(left)  # several that begin at once must not all ask the same
            has_measured = False
            for endpoint in left:
                if wanted is None or wanted is not self._to_measure or not self._may_measure():
                    break
                try:
                    self._measured[endpoint] = await measure_link(
                        endpoint, key=wanted.key, may_measure=self._may_measure
                    )
                except CannotMeasure as error:
                    logger.debug("not measured: %s", error)
                    continue
                has_measured = True
                self._on_change()
            is_done = all(one in self._measured for one in asked)
            wait_s = BUSY_AGAIN_S if has_measured else min(2 * wait_s, _MOST_BUSY_AGAIN_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(None if is_done else wait_s * self._rng.uniform(0.5, 1)):
                    await self._is_to_measure.wait()
                wait_s = BUSY_AGAIN_S


def _failing(whys: dict[str, str]) -> dict[str, str]:
    return {endpoint: why for endpoint, why in whys.items() if why}


async def why_unreachable(endpoint: str, *, own_port: int) -> str:
    """Why no connection to `endpoint` comes about; empty if one does.

    `REFUSED` need be no fault: a port is closed while a stage starts. At loopback the port must be
    that of another process of this machine, which `own_port` is not.
    """
    place = parse_endpoint(endpoint)
    if place.is_loopback and place.port == own_port:
        return "loopback leads to this process itself"
    try:
        async with asyncio.timeout(WITHIN_S):
            _, writer = await asyncio.open_connection(place.host, place.port)
    except TimeoutError:
        return f"no answer within {WITHIN_S:g} s"
    except ConnectionRefusedError:
        return _why_refused(place)
    except OSError as error:
        return (error.strerror or str(error))[:200]
    writer.close()
    return ""


def _why_refused(place: Place) -> str:
    if place.is_loopback and not is_held(place.port):
        return "loopback leads to no process of this machine"
    return REFUSED
