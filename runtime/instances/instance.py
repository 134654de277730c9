"""One instance as this process knows it: asked how it is, and if it is ours, kept running.

`health.py` decides, `process.py` and `asking.py` act; here they meet once a second.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from runtime.instances.asking import NO_ANSWER, AskedInstance
from runtime.instances.command_lines import Launch
from runtime.instances.engine_load import EngineLoad
from runtime.instances.health import (
    LOOK_EVERY_S,
    Condition,
    Patience,
    Seen,
    State,
    Step,
    after_probe,
    next_step,
    without_log,
)
from runtime.instances.process import ServerProcess
from runtime.tasks import within

_LOOK_SOON_S = 0.2
_HURRIED_STOP_S = 3.0
_TOLD_EVERY_S = 5  # how long a start has lasted

logger = logging.getLogger(__name__)


class Probed(Protocol):
    """What is asked how it is."""

    async def trouble(self) -> str:
        """What is wrong with it; empty if it is well."""

    async def load(self) -> EngineLoad:
        """How full it says it is."""


class Instance:
    """Owns what is known of an instance; the router reads it.

    This one is not started here, only asked. It seems to drain while it `is_shut`.
    """

    def __init__(
        self,
        name: str,
        *,
        probed: Probed,
        clock: Callable[[], float],
        patience: Patience,
        is_shut: Callable[[], bool] = lambda: False,
    ) -> None:
        self.load = EngineLoad()
        self._state = State(condition=Condition.STARTING, since_s=clock())
        self._name = name
        self._probed = probed
        self._clock = clock
        self._patience = patience
        self._is_shut = is_shut

    @property
    def state(self) -> State:
        """How it is."""
        if self._state.condition is Condition.READY and self._is_shut():
            return replace(self._state, condition=Condition.DRAINING)
        return self._state

    @property
    def ready_in_s(self) -> float | None:
        """When it is expected to take requests, while it starts; None if nothing is known."""
        return None

    async def run(self) -> None:
        """Look after it until cancelled."""
        while True:
            trouble = await self._probed.trouble()
            self._become(
                after_probe(self._state, trouble, patience=self._patience, now_s=self._clock())
            )
            if self._state.condition is Condition.READY:
                await self._ask_load()
            await asyncio.sleep(self._patience.look_every_s)

    async def stop(self) -> None:
        """Drain and end it, if it is ours; returns when nothing of it runs here."""

    def hurry(self) -> None:
        """While it stops: wait for no request any more."""

    def _become(self, state: State) -> None:
        before, self._state = self._state, state
        if before.condition is not state.condition:
            why = f": {state.message}" if state.message else ""
            level = logging.INFO if state.condition is not Condition.WAITING else logging.ERROR
            logger.log(level, "instance %s is %s%s", self._name, state.condition, why)

    async def _ask_load(self) -> None:
        before, self.load = self.load, await self._probed.load()
        if self.load.complaint and self.load.complaint != before.complaint:
            logger.warning("instance %s: %s", self._name, self.load.complaint)


class SupervisedInstance(Instance):
    """Owns a server process and its state; agents and fronts run it, the router reads it.

    The process is started, asked, started again with a backoff, drained, ended.

    `requests_under_way`: how many requests were sent to it from here and have not ended.
    `produced_s`: when, by `clock`, one of them last got a token.
    """

    def __init__(
        self,
        name: str,
        *,
        asked: AskedInstance,
        launch: Launch,
        process: ServerProcess,
        clock: Callable[[], float],
        patience: Patience,
        requests_under_way: Callable[[], int],
        produced_s: Callable[[], float | None] = lambda: None,
    ) -> None:
        super().__init__(name, probed=asked, clock=clock, patience=patience)
        self.asked = asked
        self._state = State()
        self._failure = ""  # why it last ended; empty once it is ready
        self._start_took_s: float | None = None
        self._launch = launch
        self._process = process
        self._requests_under_way = requests_under_way
        self._produced_s = produced_s
        self._told_requests = 0  # by its metrics, when these last said it
        self._wanted = True
        self._looking = asyncio.Lock()

    @property
    def state(self) -> State:
        """With what its log says of its start, as its probes say no more than that it starts."""
        if self._state.condition is not Condition.STARTING:
            return self._state
        return replace(self._state, message=self._start_words())

    @property
    def ready_in_s(self) -> float | None:
        if self._state.condition is not Condition.STARTING or self._start_took_s is None:
            return None
        return max(0.0, self._start_took_s - self._lasted_s)

    @property
    def _lasted_s(self) -> float:
        return self._clock() - self._state.since_s

    def _start_words(self) -> str:
        words = self._process.said.step or "starting"
        words += f", {self._lasted_s // _TOLD_EVERY_S * _TOLD_EVERY_S:.0f} s"
        if self._start_took_s is not None:
            words += f" (the last start took {self._start_took_s:.0f} s)"
        state = self._state
        if state.bad_probes and not state.message.startswith(NO_ANSWER):
            words += f"; {state.message}"
        return f"{words}; before, it failed: {self._failure}" if self._failure else words

    async def run(self) -> None:
        while True:
            await self._look()
            ready = self._state.condition is Condition.READY
            await self._wait(
                self._patience.look_every_s
                if ready
                else min(_LOOK_SOON_S, self._patience.look_every_s)
            )

    async def stop(self) -> None:
        self._wanted = False
        while self._state.condition is not Condition.IDLE or self._process.is_running:
            await self._look()
            await asyncio.sleep(min(_LOOK_SOON_S, self._patience.look_every_s))

    def hurry(self) -> None:
        self._patience = replace(self._patience, drain_s=0, stop_s=_HURRIED_STOP_S)

    async def _wait(self, seconds: float) -> None:
        """That long, or until its process ends."""
        if not self._process.is_running:
            await asyncio.sleep(seconds)
            return
        await within(seconds, self._process.gone())

    async def _look(self) -> None:
        async with self._looking:
            seen = await self._see()
            before = self._state
            state, step = next_step(
                before, seen, wanted=self._wanted, patience=self._patience, now_s=self._clock()
            )
            self._become(state)
            self._remember(before)
            if step is Step.START:
                await self._process.start(self._launch)
            elif step is Step.TERMINATE:
                self._process.terminate()
            elif step is Step.KILL:
                self._process.kill()

    def _remember(self, before: State) -> None:
        """Keep for the next start's messages: how long a start takes, the last failure."""
        condition = self._state.condition
        if condition is Condition.READY and before.condition is not Condition.READY:
            self._process.said.settle()
            self._failure = ""
            if before.condition is Condition.STARTING:
                self._start_took_s = self._clock() - before.since_s
        elif condition is Condition.WAITING:
            self._failure = without_log(self._state.message)

    async def _see(self) -> Seen:
        words, error = self._process.last_words, self._process.first_error
        ended = self._process.take_end()
        if ended is not None:
            self.load, self._told_requests = EngineLoad(), 0
            return Seen(ended=ended, last_words=words, first_error=error)
        if not self._process.is_running:
            return Seen()
        trouble = await self.asked.trouble()
        if not trouble:
            await self._ask_load()
            if self.load.requests is not None:
                self._told_requests = self.load.requests
        requests = max(self._requests_under_way(), self._told_requests)
        return Seen(
            trouble=trouble,
            requests=requests,
            produced_s=self._produced_s(),
            last_words=words,
            first_error=error,
        )


async def look_after(name: str, instance: Instance, *, again_s: float = LOOK_EVERY_S) -> None:
    """Until cancelled. What goes wrong with one instance is logged; then it is looked after again,
    as are the others."""
    while True:
        try:
            await instance.run()
        except Exception:  # the last resort of a task that is not awaited
            logger.exception("instance %s could not be looked after for a moment", name)
            await asyncio.sleep(again_s)
