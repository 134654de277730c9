"""Runs a solver on a thread of its own, so that its caller never waits for it.

Solvers call back irregularly: HiGHS is silent for up to two seconds inside its heuristics. So the
caller's thread checks every 50 ms whether to stop, and receives solutions and bounds in between.
The watcher runs on the caller's thread only, so it may use resources of that thread, such as a
database connection, and Ctrl-C interrupts it there.
"""

import math
import queue
import threading
from collections.abc import Callable, Sequence

from planner.placers.solvers.base import SolveOutcome, SolveWatcher

_POLL_INTERVAL_S = 0.05
_GRACE_S = 0.1


class SolverChannel:
    """The solver's side: reports solutions and bounds, and asks whether to stop."""

    def __init__(self) -> None:
        self.messages: queue.SimpleQueue[Sequence[float] | SolveOutcome | Exception] = (
            queue.SimpleQueue()
        )
        self.stop = threading.Event()
        self.upper_bound = math.inf

    def tell_solution(self, values: Sequence[float]) -> None:
        self.messages.put(values)

    def tell_bound(self, upper_bound: float) -> None:
        """Report a bound; only the newest matters, so it is overwritten, not queued."""
        self.upper_bound = upper_bound

    def should_stop(self) -> bool:
        return self.stop.is_set()


def run_watched(
    solve_on: Callable[[SolverChannel], SolveOutcome], watcher: SolveWatcher
) -> SolveOutcome:
    """Run `solve_on` to its end or until the watcher stops it; raises what either raises.

    A stopped solver that does not end at once is left to end by itself, without being heard again.
    Its thread is not a daemon: a process that exits meanwhile waits for it instead of crashing in
    a callback from native code.
    """
    channel = SolverChannel()
    thread = threading.Thread(target=_solve, args=(solve_on, channel), name="solver")
    thread.start()
    try:
        while not watcher.should_stop():
            outcome = _hear(channel, watcher, timeout_s=_POLL_INTERVAL_S)
            if outcome is not None:
                return outcome
    finally:
        channel.stop.set()
    thread.join(_GRACE_S)
    while not channel.messages.empty():
        outcome = _hear(channel, watcher, timeout_s=0.0)
        if outcome is not None:
            return outcome
    return SolveOutcome(upper_bound=channel.upper_bound, cause="stopped")


def _solve(solve_on: Callable[[SolverChannel], SolveOutcome], channel: SolverChannel) -> None:
    try:
        channel.messages.put(solve_on(channel))
    except Exception as error:  # noqa: BLE001 - the caller's thread raises it
        channel.messages.put(error)


def _hear(
    channel: SolverChannel, watcher: SolveWatcher, *, timeout_s: float
) -> SolveOutcome | None:
    """Pass on at most one message and the newest bound; the outcome if that was the message."""
    try:
        message = channel.messages.get(timeout=timeout_s)
    except queue.Empty:
        message = None
    if isinstance(message, Exception):
        raise message
    if isinstance(message, SolveOutcome):
        watcher.on_bound(message.upper_bound)
        return message
    if message is not None:
        watcher.on_solution(message)
    watcher.on_bound(channel.upper_bound)
    return None
