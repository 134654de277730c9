"""Measures the node when helixweb wants it, and only while the node has nothing to do.

A child process does the measuring and asks before each step; what it may do is decided here, by
`leave_to_measure`, from what the stage says of itself, or instances of their requests.
"""

import asyncio
import contextlib
import logging
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import psutil
from pydantic import ValidationError

from runtime.agent.reconcile import LocalState
from runtime.agent.supervisor import StageSettings, write_line
from runtime.instances.health import Condition
from runtime.protocol.engines import EngineSettings
from runtime.protocol.instance_orders import ObservedInstance
from runtime.protocol.phases import Phase
from runtime.protocol.profiling import (
    NodeMeasurement,
    ProfileOrder,
    ProfilingPhase,
    ProfilingProgress,
)
from runtime.protocol.stage_pipe import (
    AGAIN,
    GO,
    Asking,
    CannotMeasure,
    Checked,
    ProfilingLaunch,
    parse_profiling_event,
)

logger = logging.getLogger(__name__)

_LOOK_AGAIN_S = 0.25
_BITS_PER_BYTE = 8
_MEGA = 1e6
_OVER = frozenset({ProfilingPhase.DONE, ProfilingPhase.FAILED})
_COMES_OR_GOES = frozenset({Condition.STARTING, Condition.DRAINING, Condition.STOPPING})
_WAITS = "the node serves; the measurement goes on when it pauses"


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What a node has done so far, as told at `heard_s`, and whether it is at something now."""

    heard_s: float
    steps: int
    is_busy: bool


def stage_traffic(local: LocalState, *, now_s: float) -> Traffic | None:
    """What the stage last said of its work; one that loads or leaves is busy."""
    running = local.running
    if running is None:
        return None
    stats, heard_s = running.stats, running.heard_s
    if running.phase not in (Phase.READY, Phase.IDLE) or stats is None or heard_s is None:
        return Traffic(heard_s=now_s, steps=0, is_busy=True)
    return Traffic(heard_s=heard_s, steps=stats.steps_total, is_busy=stats.sequences > 0)


def node_traffic(
    local: LocalState, instances: Iterable[ObservedInstance], *, now_s: float
) -> Traffic | None:
    """Of the stage, or else of whole-model instances: one that has requests, starts or ends is
    busy. An engine that does not say how many it has is taken to have none."""
    present = [one for one in instances if one.condition != Condition.IDLE]
    if local.running is not None or not present:
        return stage_traffic(local, now_s=now_s)
    is_busy = any(bool(one.requests) or one.condition in _COMES_OR_GOES for one in present)
    return Traffic(heard_s=now_s, steps=0, is_busy=is_busy)


def leave_to_measure(before: Traffic | None, now: Traffic | None, *, asked_s: float) -> bool:
    """Whether a step may be timed, asked for at `asked_s`. None: nothing is served.

    What was heard before the question says nothing of now; steps since `before` say that traffic
    has not paused.
    """
    if now is None:
        return True
    if now.is_busy or now.heard_s <= asked_s:
        return False
    return before is None or now.steps == before.steps


class Profiling:
    """Owns the process that measures this node; the agent calls it.

    At most one measurement at a time. `want` is called with what each heartbeat's answer says.

    `settings` are those that a stage of one rank would have; `host` is of the address that other
    nodes dial. `traffic`: None while nothing is served here. `on_change` is called after each
    change.
    """

    def __init__(
        self,
        *,
        settings: StageSettings,
        host: str,
        emulated: bool = False,
        traffic: Callable[[], Traffic | None],
        on_change: Callable[[], None],
    ) -> None:
        self.progress: ProfilingProgress | None = None
        self._settings, self._host, self._emulated = settings, host, emulated
        self._traffic = traffic
        self._on_change = on_change
        self._measuring: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._waited_s = 0.0

    def use_engine(self, engine: EngineSettings) -> None:
        """For measurements that begin from now on."""
        self._settings = self._settings.model_copy(update={"engine": engine})

    def want(self, order: ProfileOrder | None) -> None:
        """Begin, go on, or end what is under way."""
        if order is not None and self.progress is not None and order.id == self.progress.id:
            return
        self._end()
        self.progress = None
        if order is not None:
            logger.info("measuring this node for %s", order.checkpoint)
            self._say(order, ProfilingPhase.MEASURING)
            self._measuring = asyncio.create_task(self._measure(order))

    async def stop(self) -> None:
        """End what is under way and wait until its process has gone."""
        self._end()
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _end(self) -> None:
        """Cancel what is under way; its process goes a little later."""
        if self._measuring is not None:
            self._ending.add(self._measuring)
            self._measuring.add_done_callback(self._ending.discard)
            if self.progress is None or self.progress.phase not in _OVER:
                self._measuring.cancel()  # else it is about to end by itself
            self._measuring = None

    async def _measure(self, order: ProfileOrder) -> None:
        began_s, self._waited_s = time.monotonic(), 0.0
        if self._emulated:
            self._fail(order, "an emulated node takes its times from a profile; none is measured")
            return
        try:
            process = await self._settings.start_child(
                self._settings.profile_command, stderr=DEVNULL
            )
        except OSError as error:
            self._fail(order, f"cannot start {self._settings.profile_command[0]}: {error}")
            return
        try:
            await self._converse(process, order, began_s=began_s)
        except Exception as error:  # the last resort of a task that is not awaited
            logger.exception("this node could not be measured")
            self._fail(order, f"the measurement broke off: {type(error).__name__}: {error}")
        finally:
            await _end_process(process)

    async def _converse(self, process: Process, order: ProfileOrder, *, began_s: float) -> None:
        """Launch it and answer its questions until it has said its last word."""
        if process.stdout is None:
            raise RuntimeError("the measuring process was started without pipes")
        launch = ProfilingLaunch(order=order, **self._settings.of_launch(ProfilingLaunch, ranks=1))
        answer, left_with = launch.to_line(), self._traffic()
        while True:
            await write_line(process, answer)
            line = await process.stdout.readline()
            if not line:
                code = await process.wait()
                self._fail(order, f"the measuring process ended with status {code}")
                return
            try:
                event = parse_profiling_event(line)
            except ValidationError:
                self._fail(order, f"the measuring process said {line[:80]!r}, which is no event")
                return
            if isinstance(event, CannotMeasure):
                self._fail(order, event.message)
                return
            if isinstance(event, Checked):
                self._say(order, ProfilingPhase.DONE, done=1.0, checked=event.points)
                return
            if not isinstance(event, Asking):
                self._finish(order, event.measurement, seconds=time.monotonic() - began_s)
                return
            answer = AGAIN if await self._quiet_since(left_with, order, event.done) else GO
            left_with = self._traffic()

    async def _quiet_since(
        self, left_with: Traffic | None, order: ProfileOrder, done: float
    ) -> bool:
        """Wait for a quiet moment; returns whether traffic came since the last one."""
        began_s = asked_s = time.monotonic()
        was_quiet, disturbed = left_with, False
        while not leave_to_measure(was_quiet, now := self._traffic(), asked_s=asked_s):
            if now is not None and now.heard_s > asked_s:
                disturbed = True
                asked_s, was_quiet = now.heard_s, now
                self._say(order, ProfilingPhase.WAITING, done=done, message=_WAITS)
            await asyncio.sleep(_LOOK_AGAIN_S)
        if disturbed:
            self._waited_s += time.monotonic() - began_s
        self._say(order, ProfilingPhase.MEASURING, done=done)
        return disturbed

    def _finish(self, order: ProfileOrder, found: NodeMeasurement, *, seconds: float) -> None:
        measurement = found.model_copy(
            update={
                "seconds": seconds,
                "waited_s": self._waited_s,
                "nic_bytes_per_s": nic_bytes_per_s(self._host),
            }
        )
        logger.info("measured this node in %.0f s", seconds)
        self._say(order, ProfilingPhase.DONE, done=1.0, measurement=measurement)

    def _fail(self, order: ProfileOrder, message: str) -> None:
        logger.warning("this node was not measured: %s", message)
        self._say(order, ProfilingPhase.FAILED, message=message)

    def _say(self, order: ProfileOrder, phase: ProfilingPhase, **found: Any) -> None:
        """`found`: other fields of the progress."""
        progress = ProfilingProgress(id=order.id, phase=phase, **found)
        if progress != self.progress:
            self.progress = progress
            self._on_change()


async def _end_process(process: Process) -> None:
    """Kill it and wait until it and its pipes have gone."""
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    if process.stdin is not None:
        process.stdin.close()
    if process.stdout is not None:
        await process.stdout.read()
    await process.wait()


def nic_bytes_per_s(host: str) -> float | None:
    """What the network card with this address says that it does; None where it does not say."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(address.address == host for address in addresses):
            state = psutil.net_if_stats().get(name)
            return state.speed * _MEGA / _BITS_PER_BYTE if state and state.speed > 0 else None
    return None
