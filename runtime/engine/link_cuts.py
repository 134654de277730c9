"""Whose prompt begins here next, and with how much, by what is measured of the link its rows take.

Where several prompts wait for one slow link their rows wait here rather than on it, where they go
in the order of their steps. A short one overtakes a long one then, so that most answers begin
sooner, but only if it came not much later: within thrice of what the long one's rows take longer.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from runtime.engine.prompt_steps import PromptSteps
from runtime.engine.sequence import Sequence, Work
from runtime.protocol.control import LinkStats

_ASKED_EVERY_S = 0.02
_OVERTAKEN = 3.0  # times of rows on the link
# Of rows that wait on a link, so that it never waits for the next step, nor is it asked for less
# than it could do, by which it is measured: so long, and so many of the longest steps of late.
_LEAST_AHEAD_S = 0.25
_STEPS_AHEAD = 2.0
_FADES = 0.9  # with each step


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
        self._most: dict[str, float] = {}  # the highest of them so far
        self._waiting: Counter[str] = Counter()  # bytes, likewise
        self._asked_s = float("-inf")
        self._longest_step_s = 0.0  # of late, of those with prompts

    def observe(self, step: Iterable[Work], *, step_s: float) -> None:
        """A step has run."""
        prompts = [work for work in step if work.is_prompt]
        if prompts:
            self._longest_step_s = max(step_s, _FADES * self._longest_step_s)
        for work in prompts:
            if not work.sequence.is_last_stage:
                self._waiting[_link_of(work.sequence)] += work.chunk.n_tokens * self._row_bytes
        prompt_tokens = sum(work.chunk.n_tokens for work in prompts)
        self._steps.observe(prompt_tokens=prompt_tokens, step_s=step_s)

    def beginning(self, waiting: Iterable[Sequence]) -> Beginning:
        """What the next step takes of prompts that begin here."""
        prompts = [one for one in waiting if one.is_first_stage and one.is_prefilling]
        if not prompts:
            return Beginning()
        self._ask()
        at = Counter(map(_link_of, prompts))
        held_s = [self._held_s(one) if at[_link_of(one)] > 1 else 0.0 for one in prompts]
        if min(held_s) > 0:
            return Beginning(most_rows=0, held_s=min(held_s))
        free = [one for one, its_s in zip(prompts, held_s, strict=True) if its_s == 0]
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
        rate = self._rates.get(_link_of(sequence))
        return self._row_bytes / rate if rate else 0.0

    def _held_s(self, sequence: Sequence) -> float:
        """Until its link has room for more, which is measured by the most that it ever did: what a
        link that was slow can do now shows only while it has enough to do."""
        link = _link_of(sequence)
        rate = self._rates.get(link)
        if not rate:
            return 0.0
        ahead_s = max(_LEAST_AHEAD_S, _STEPS_AHEAD * self._longest_step_s)
        return max(0.0, self._waiting[link] - ahead_s * self._most[link]) / rate

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
            self._most[name] = max(rate, self._most.get(name, 0.0))


def _link_of(sequence: Sequence) -> str:
    """By the stage at its other end; empty for the last stage."""
    return "" if sequence.is_last_stage else sequence.next_stage
