"""Whose prompt begins here next, and with how much, by what is measured of the link its rows take.

Rows wait for a slow link here rather than on it, where they go in the order of their steps. Among
prompts that wait for a link a short one overtakes a long one, so that most answers begin sooner,
but only if it came not much later: within thrice of what the long one's rows take longer.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from runtime.engine.prompt_steps import PromptSteps
from runtime.engine.sequence import Sequence, Work
from runtime.protocol.control import LinkStats

_ASKED_EVERY_S = 0.02
_OVERTAKEN = 3.0  # times of rows on the link
_LEAST_AHEAD_S = 0.1  # of rows that wait on a link, so that it never waits for the next step
_STEPS_AHEAD = 2.0  # likewise
_FADES = 0.9  # of the longest step, with each


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """`ahead` goes before the other prompts that begin here; all get at most `most_rows` of a step,
    None: any number. With 0 they wait, for `held_s` if nothing happens before."""

    ahead: Sequence | None = None
    most_rows: int | None = None
    held_s: float = 0.0


class LinkCuts:
    """`row_bytes`: what one token weighs on a link. `steps` is told of every step.

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
        self._waiting: Counter[str] = Counter()  # bytes, likewise
        self._asked_s = float("-inf")
        self._longest_step_s = 0.0  # of late

    def observe(self, step: Iterable[Work], *, step_s: float) -> None:
        """A step has run."""
        self._longest_step_s = max(step_s, _FADES * self._longest_step_s)
        prompts = [work for work in step if work.is_prompt]
        for work in prompts:
            if not work.sequence.is_last_stage:
                self._waiting[work.sequence.next_stage] += work.chunk.n_tokens * self._row_bytes
        prompt_tokens = sum(work.chunk.n_tokens for work in prompts)
        self._steps.observe(prompt_tokens=prompt_tokens, step_s=step_s)

    def beginning(self, waiting: Iterable[Sequence]) -> Beginning:
        """What the next step takes of prompts that begin here."""
        prompts = [one for one in waiting if one.is_first_stage and one.is_prefilling]
        if not prompts:
            return Beginning()
        self._ask()
        most_s = max(_LEAST_AHEAD_S, _STEPS_AHEAD * self._longest_step_s)
        free = [one for one in prompts if self._backlog_s(one) <= most_s]
        if not free:
            held_s = min(map(self._backlog_s, prompts)) - most_s
            return Beginning(most_rows=0, held_s=held_s)
        ahead = min(free, key=lambda one: (self._turn_s(one), one.arrival))
        return Beginning(ahead=ahead, most_rows=self._most_rows(ahead))

    def _most_rows(self, sequence: Sequence) -> int | None:
        row_s = self._row_s(sequence)
        if not row_s:
            return None
        return self._steps.size(
            prompt_tokens=sequence.route.prompt_tokens,
            stages=len(sequence.route.hops),
            row_s=row_s,
        )

    def _turn_s(self, sequence: Sequence) -> float:
        """The least goes first: who came first, but for what a link has to do for it yet."""
        rows_s = sequence.pending[0].n_tokens * self._row_s(sequence)
        return sequence.heard_s + _OVERTAKEN * rows_s

    def _row_s(self, sequence: Sequence) -> float:
        """On the next link; 0 where there is none, or none that was seen full."""
        rate = None if sequence.is_last_stage else self._rates.get(sequence.next_stage)
        return self._row_bytes / rate if rate else 0.0

    def _backlog_s(self, sequence: Sequence) -> float:
        rate = None if sequence.is_last_stage else self._rates.get(sequence.next_stage)
        return self._waiting[sequence.next_stage] / rate if rate else 0.0

    def _ask(self) -> None:
        """A link that was never seen full may do far more than it was asked for."""
        now_s = self._clock()
        if now_s - self._asked_s < _ASKED_EVERY_S:
            return
        self._asked_s = now_s
        for name, stats in self._link_stats().items():
            self._waiting[name] = stats.waiting_bytes
            rate, before = stats.bandwidth_bytes_per_s, self._rates.get(name)
            if rate is None or (stats.bandwidth_is_floor and before is None):
                continue
            self._rates[name] = max(rate, before or 0.0) if stats.bandwidth_is_floor else rate
