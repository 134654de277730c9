"""Times of a layer and limits of a batch: the input of simulator and estimates."""

from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise

from planner.domain.errors import InvalidProblem
from planner.domain.limits import (
    MAX_BATCH_TOKENS,
    MAX_LAYER_SECONDS,
    MIN_TOKENS,
    Count,
    Range,
    Seconds,
    check,
    check_fields,
)

Points = tuple[tuple[float, float], ...]
# Of `LayerTimes`: seconds that do not depend on tokens or layers.
FIXED_KEYS = ("prompt_step_s", "decode_step_s", "head_s", "handling_s", "hop_s")
_TOKENS, _SECONDS = Range(MIN_TOKENS, MAX_BATCH_TOKENS), Range(0, MAX_LAYER_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTimes:
    """Seconds one layer takes for a batch, by its tokens: (tokens, seconds), tokens rising.

    `prompt` for the prompt tokens of a batch together, `decode` for its decoding sequences. Between
    two points the time is linear, below the first from (0, 0), beyond the last by its slope, or as
    long as the last where that is shorter than the one before. A step takes `prompt_step_s`, or
    `decode_step_s`, however many layers it runs, and where it ends with the model's last layer
    `head_s` for logits and tokens; see `held`. Beside each step the stage needs `handling_s` to
    take in, pack and send, and a message between two processes `hop_s` beside the link: to leave
    the one and to wake the other, half at either end.
    """

    prompt: Points
    decode: Points
    prompt_step_s: Seconds = 0.0
    decode_step_s: Seconds = 0.0
    head_s: Seconds = 0.0
    handling_s: Seconds = 0.0
    hop_s: Seconds = 0.0

    def __post_init__(self) -> None:
        check_fields(self, "layer_times.")
        for phase, points in (("prompt", self.prompt), ("decode", self.decode)):
            if not points:
                raise InvalidProblem(
                    f"layer_times.{phase} has no points; give at least one [tokens, seconds]"
                )
            for tokens, seconds in points:
                if not (tokens > 0 and seconds > 0):
                    raise InvalidProblem(
                        f"layer_times.{phase} has the point [{tokens:g}, {seconds:g}]; tokens and "
                        "seconds must be greater than 0 (no tokens take no time)"
                    )
                where = f"layer_times.{phase} has the point [{tokens:g}, {seconds:g}]:"
                check(f"{where} tokens", tokens, _TOKENS)
                check(f"{where} seconds", seconds, _SECONDS)
            for (tokens, _), (following, _) in pairwise(points):
                if not tokens < following:
                    raise InvalidProblem(
                        f"layer_times.{phase} has {following:g} tokens after {tokens:g}; "
                        "sort the points by tokens, each once"
                    )

    def held(self, layers: int, *, has_head: bool) -> "LayerTimes":
        """Times for a stage of so many layers, with the other time of a step divided among them: a
        step takes `layers` times these seconds. `has_head`: they include the model's last layer."""
        prompt_s, decode_s = self._beside_s("prompt", has_head), self._beside_s("decode", has_head)
        if prompt_s == decode_s == 0:
            return self
        return LayerTimes(
            prompt=tuple((size, s + prompt_s / layers) for size, s in self.prompt),
            decode=tuple((size, s + decode_s / layers) for size, s in self.decode),
        )

    def shared_s(self, *, has_head: bool) -> float:
        """Seconds that `held` counts for prompts and for decodes, but a step of both has once."""
        return min(self._beside_s("prompt", has_head), self._beside_s("decode", has_head))

    def _beside_s(self, phase: str, has_head: bool) -> float:
        step_s = self.prompt_step_s if phase == "prompt" else self.decode_step_s
        return step_s + self.handling_s + (self.head_s if has_head else 0.0)

    @property
    def least_decodes(self) -> int:
        """Fewer take as long: one decode as two, unless it was measured what one takes."""
        return 1 if self.decode[0][0] <= 1 else 2

    def prompt_s(self, tokens: float) -> float:
        """Seconds one layer takes for that many prompt tokens in a batch."""
        return _interpolated(self.prompt, tokens)

    def decode_s(self, sequences: float) -> float:
        """Seconds one layer takes for one token of each of that many sequences."""
        return _interpolated(self.decode, sequences)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """Batch limits of the published system by layers held: entry j-1 for j layers."""

    prompt_max_requests: tuple[Count, ...]
    decode_max_tokens: tuple[Count, ...]

    def __post_init__(self) -> None:
        check_fields(self, "batch_limits.")


def _interpolated(points: Points, amount: float) -> float:
    if amount <= 0:
        return 0.0
    upper = min(bisect_left(points, amount, key=lambda point: point[0]), len(points) - 1)
    x1, y1 = points[upper]
    x0, y0 = points[upper - 1] if upper > 0 else (0.0, 0.0)
    if amount > x1 and y1 < y0:
        return y1
    return y0 + (y1 - y0) * (amount - x0) / (x1 - x0)
