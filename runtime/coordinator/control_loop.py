"""Keeps the coordinator and helixweb in step, and goes on alone while helixweb is away."""

import asyncio
import logging
from collections.abc import Callable

from runtime.coordinator.plan_follower import PlanFollower
from runtime.protocol.control import AgentIdentity, CoordinatorDesired, CoordinatorReport
from runtime.web_client import ServerRefused, WebClient, WebError

REPORT_INTERVAL_S = 1.0

logger = logging.getLogger(__name__)


class Removed(Exception):
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
) -> None:
    """Report about once a second; a reply of another generation means a push was lost.

    `on_delivered` gets each report that was answered.

    Whenever helixweb answers again it is told anew where this process listens: it may have been
    away when that changed. Raises Removed.
    """
    in_step = False
    was_away = False
    while True:
        try:
            if not in_step:
                await web.announce(announcement)
                in_step = True
                logger.info("helixweb answers")
            report = make_report()
            reply = await web.report(report)
            on_delivered(report)
            if reply.generation != follower.generation:
                await follower.apply(await web.coordinator_desired())
            was_away = False
        except WebError as error:
            if isinstance(error, ServerRefused) and error.is_unknown:
                raise _removed(error) from error
            if not was_away:
                logger.warning("helixweb: %s; serving goes on without it", error)
            in_step, was_away = False, True
        await asyncio.sleep(REPORT_INTERVAL_S)


def _removed(error: ServerRefused) -> Removed:
    return Removed(
        f"helixweb does not know this coordinator any more ({error}); to join anew, delete its "
        "data directory and use a fresh join token"
    )
