"""Tests wait for conditions, within a bound on hanging that measures nothing."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
PATIENCE_S = 300.0


def until(condition: Callable[[], T], what: str, *, within_s: float = PATIENCE_S) -> T:
    """What the condition returns as soon as that is true; `what` says what never happened."""
    deadline = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.1)
    return found


async def until_async(
    condition: Callable[[], object], what: str, *, within_s: float = PATIENCE_S
) -> None:
    """The same for a condition of the event loop, which must not block."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"never happened: {what}"
        await asyncio.sleep(0.05)
