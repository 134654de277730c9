"""Cuts prompts where they begin, by what is measured of the link that their rows take next."""

from collections.abc import Callable, Iterable

from runtime.engine.prompt_steps import PromptSteps
from runtime.engine.sequence import Sequence, Work
from runtime.protocol.control import LinkStats

_ASKED_EVERY_S = 0.25


class LinkCuts:
    """Decides how long prompt steps may be for the next link; the stage asks it.

    `row_bytes`: what one token weighs on a link. `steps` gets every step.

    `clock` is in seconds; `link_stats` by the peer sent to.
    """

    def __init__(
        self,
        steps: PromptSteps,
        *,
        row_bytes: int,
        link_stats: Callable[[], dict[str, LinkStats]],
        clock: Callable[[], float],
    ) -> None:
        self._steps = steps
        self._row_bytes = row_bytes
        self._link_stats = link_stats
        self._clock = clock
        self._rates: dict[str, float] = {}  # bytes/s by the peer sent to
        self._asked_s = float("-inf")

    def observe(self, step: Iterable[Work], *, step_s: float) -> None:
        """A step has run."""
        prompt_tokens = sum(work.chunk.n_tokens for work in step if work.is_prompt)
        self._steps.observe(prompt_tokens=prompt_tokens, step_s=step_s)

    def first_rows(self, waiting: Iterable[Sequence]) -> int | None:
        """Most tokens that the next step takes of prompts that begin here; None: any number."""
        beginning = [one for one in waiting if one.is_first_stage and one.is_prefilling]
        if not beginning:
            return None
        oldest = min(beginning, key=lambda sequence: sequence.arrival)
        if oldest.is_last_stage:
            return None
        rate = self._rate(oldest.next_stage)
        if not rate:
            return None
        return self._steps.size(
            prompt_tokens=oldest.route.prompt_tokens,
            stages=len(oldest.route.hops),
            row_s=self._row_bytes / rate,
        )

    def _rate(self, peer: str) -> float | None:
        """Bytes/s; None before the link was seen full: it may do far more than it was asked for."""
        now_s = self._clock()
        if now_s - self._asked_s >= _ASKED_EVERY_S:
            self._asked_s = now_s
            for name, stats in self._link_stats().items():
                rate, before = stats.bandwidth_bytes_per_s, self._rates.get(name)
                if rate is None or (stats.bandwidth_is_floor and before is None):
                    continue
                self._rates[name] = max(rate, before or 0.0) if stats.bandwidth_is_floor else rate
        return self._rates.get(peer)
