"""How many prompt tokens a step takes where their rows leave over a slow link. Pure.

Later stages begin when the first rows come, so small steps let the transfer of one overlap with the
computing of the next, at every stage; but each step takes the time of its decodes again, and steps
that take longer than their rows take the link only keep it waiting. MoLink (§4.2) sizes what goes
over a link by when the next decode is due; this sizes what is computed for it.
"""

from bisect import bisect_left

_WEIGHT = 0.2  # of one observation in the moving averages
# Fewer, larger steps leave more time for decodes: worth so much of a prompt's time to its end.
_TOLERATED = 1.1

_Point = tuple[float, float]  # tokens, seconds


class PromptSteps:
    """Owns how long prompt steps of each size took; `LinkCuts` and the stage call it.

    Sizes are `least` tokens times a power of two, below `most`. Times in seconds.
    """

    def __init__(self, *, least: int, most: int) -> None:
        self._sizes = [least << power for power in range(most.bit_length())]
        self._sizes = [size for size in self._sizes if size < most]
        self._most = most
        self._seen: dict[int, _Point] = {}  # power of two of prompt tokens -> averages
        self._points: list[_Point] = []  # the same, tokens rising

    def observe(self, *, prompt_tokens: int, step_s: float) -> None:
        """A step of so many tokens of prompts, and the decodes that ran with them, took that long;
        0: of decodes alone, which says nothing."""
        if not prompt_tokens:
            return
        power = prompt_tokens.bit_length()
        tokens, seconds = self._seen.get(power, (prompt_tokens, step_s))
        self._seen[power] = (
            tokens + _WEIGHT * (prompt_tokens - tokens),
            seconds + _WEIGHT * (step_s - seconds),
        )
        self._points = sorted(self._seen.values())

    def size(self, *, prompt_tokens: int, stages: int, row_s: float) -> int | None:
        """Most tokens of a step that get a prompt of `prompt_tokens` soonest through `stages`, this
        one among them, if a row takes the next link for `row_s`; None: as many as there is room.

        All stages and links are taken to be like those known here. Steps that their rows' transfer
        does not hide are never chosen.
        """
        if not self._points:
            return None

        def through_s(size: int) -> float:
            """All parts follow the slower of step and link; the last one visits each of both."""
            part = min(size, prompt_tokens)
            step_s, link_s = self._step_s(part), part * row_s
            visits_s = stages * step_s + (stages - 1) * link_s
            return visits_s + (prompt_tokens / part - 1) * max(step_s, link_s)

        hidden = [size for size in self._sizes if self._step_s(size) <= size * row_s]
        soonest_s = min(map(through_s, [*hidden, self._most]))
        if through_s(self._most) <= _TOLERATED * soonest_s:
            return None
        return max(size for size in hidden if through_s(size) <= _TOLERATED * soonest_s)

    def _step_s(self, tokens: int) -> float:
        """Between what was seen; more tokens than ever in proportion, fewer as long as the least,
        so that no step is hoped to be short before one nearly as small was."""
        points = self._points
        after = bisect_left(points, (tokens, 0.0))
        if after == 0:
            return points[0][1]
        tokens_0, seconds_0 = points[after - 1]
        if after == len(points):
            return seconds_0 * tokens / tokens_0
        tokens_1, seconds_1 = points[after]
        return seconds_0 + (seconds_1 - seconds_0) * (tokens - tokens_0) / (tokens_1 - tokens_0)
