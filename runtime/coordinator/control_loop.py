"""Keeps the coordinator and helixweb in step, and goes on alone while helixweb is away."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from runtime.coordinator.plan_follower import PlanFollower
from runtime.protocol.complaints import StartRefused
from runtime.protocol.control import AgentIdentity, CoordinatorDesired, CoordinatorReport
from runtime.reaching import Reaching
from runtime.web_client import ServerRefused, WebClient, WebError

REPORT_INTERVAL_S = 1.0

logger = logging.getLogger(__name__)


class Removed(StartRefused):
    """helixweb does not know this coordinator any more."""


async def follow_plan(web: WebClient, follower: PlanFollower) -> None:
    """Apply every desired state as it is pushed, forever. Raises Removed."""
    try:
        async for desired in web.desired_states(CoordinatorDesired):
            await follower.apply(desired)
    except ServerRefused as error:
        raise _removed(error) from error


async def report_forever(
    web: WebClient,
    follower: PlanFollower,
    *,
    announcement: AgentIdentity,
    make_report: Callable[[], CoordinatorReport],
    on_delivered: Callable[[CoordinatorReport], None] = lambda _: None,
    reaching: Reaching,
    news: asyncio.Event,
) -> None:
    """Report about once a second; a reply of another generation means a push was lost.

    `on_delivered` gets each report that was answered, `reaching` what to try. `news` is set when
    a stage was lost or came back, and sends the next report at once.

    Whenever helixweb answers again, this process announces where it listens: helixweb may have been
    away when that changed. Raises Removed.
    """
    in_step = False
    was_away = False
    while True:
        news.clear()  # before what may fail, or the wait below would return at once
        try:
            if not in_step:
                await web.announce(announcement)
                in_step = True
                logger.info("helixweb answers")
            report = make_report().model_copy(update={"reach": reaching.state})
            reply = await web.report(report)
            on_delivered(report)
            reaching.want(reply.to_reach, reply.to_measure)
            # reports go on while a plan is applied, which may wait for a tokenizer from a hub
            if reply.generation != follower.generation and not follower.is_applying:
                await follower.apply(await web.coordinator_desired())
            was_away = False
        except WebError as error:
            if isinstance(error, ServerRefused) and error.is_unknown:
                raise _removed(error) from error
            if not was_away:
                logger.warning("helixweb: %s; serving goes on without it", error)
            in_step, was_away = False, True
        with suppress(TimeoutError):
            async with asyncio.timeout(REPORT_INTERVAL_S):
                await news.wait()


def _removed(error: ServerRefused) -> Removed:
    return Removed(
        f"helixweb does not know this coordinator any more ({error}); to join again, delete its "
        "data directory and use a fresh join token"
    )
