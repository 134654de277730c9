"""What a stage counts of its steps, and what it tells of itself."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from runtime.engine.backend import Backend
from runtime.engine.running_requests import RunningRequests
from runtime.engine.sequence import Work
from runtime.engine.step_pace import StepPace
from runtime.protocol.control import LinkStats, StageStats


@dataclass(slots=True, kw_only=True)
class StageCounters:
    """Since the stage was made, at `started_s` of `clock`.

    `core_delay`: how long its thread has waited for a core, in seconds; None: unknown.
    """

    clock: Callable[[], float]
    core_delay: Callable[[], float] | None
    started_s: float
    preemptions: int = 0
    _steps: int = field(default=0, init=False)
    _prompt_tokens: int = field(default=0, init=False)
    _decode_tokens: int = field(default=0, init=False)
    _busy_s: float = field(default=0.0, init=False)
    _delayed_s: float = field(default=0.0, init=False)

    def delay_s(self) -> float:
        """How long the thread has waited for a core since it began; 0 where that cannot be read."""
        return 0.0 if self.core_delay is None else self.core_delay()

    def delayed(self, *, since_s: float) -> None:
        """A step was run before which `delay_s` had said `since_s`."""
        self._delayed_s += self.delay_s() - since_s

    def ran(self, step: Iterable[Work], *, busy_s: float) -> None:
        """A step lasted so long."""
        self._steps += 1
        self._busy_s += busy_s
        for work in step:
            if work.is_prompt:
                self._prompt_tokens += work.chunk.n_tokens
            else:
                self._decode_tokens += work.chunk.n_tokens

    def told(
        self,
        backend: Backend,
        *,
        running_requests: RunningRequests,
        pace: StepPace,
        prefix_tokens_total: int,
        links: dict[str, LinkStats],
    ) -> StageStats:
        """With the state that the stage's parts are in now."""
        kv_manager, decode_cap, cores = backend.kv_manager, pace.decode_cap, pace.shared_cores
        return StageStats(
            kv_pages_total=kv_manager.total,
            kv_pages_used=kv_manager.used,
            kv_pages_cached=kv_manager.cached,
            sequences=len(running_requests.by_key),
            steps_total=self._steps,
            prompt_tokens_total=self._prompt_tokens,
            decode_tokens_total=self._decode_tokens,
            busy_s_total=self._busy_s,
            delayed_s_total=None if self.core_delay is None else self._delayed_s,
            uptime_s=self.clock() - self.started_s,
            weights_bytes=backend.weights_bytes,
            kv_bytes=backend.kv_bytes,
            decode_cap=decode_cap.limit(resident=running_requests.decoding),
            micro_batches=decode_cap.micro_batches,
            steps_at_once=None if cores is None else cores.bound,
            preemptions_total=self.preemptions,
            prefix_tokens_total=prefix_tokens_total,
            emulated=backend.emulated,
            engine=backend.engine,
            links=links,
        )
