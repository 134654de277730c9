"""A simulator's engine that stops at even ticks of simulated time, to be looked at from outside."""

from collections.abc import Callable
from typing import Any

from planner import Engine, Occurrence


class WatchedEngine:
    """`engine` itself, but `on_tick` hears of every `tick_s` of simulated time that has passed, and
    `admitted` counts requests that were let in.

    What `on_tick` raises ends the simulation. It may read and reset the engine's statistics.
    """

    def __init__(self, engine: Engine, *, tick_s: float, on_tick: Callable[[Any], None]) -> None:
        self.admitted = 0
        self._engine = engine
        self._tick_s = tick_s
        self._on_tick = on_tick
        self._next_s = engine.now + tick_s

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def admit(self, **request: Any) -> int:
        self.admitted += 1
        return self._engine.admit(**request)

    def advance(self, until_s: float) -> Occurrence | None:
        while self._next_s < until_s:
            occurrence = self._engine.advance(self._next_s)
            if occurrence is not None:
                return occurrence
            self._on_tick(self)
            self._next_s += self._tick_s
        return self._engine.advance(until_s)
