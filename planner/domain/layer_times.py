"""How long a layer takes and how much a batch holds: what simulator and estimates stand on."""

from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise

from planner.domain.errors import InvalidProblem

Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTimes:
    """Seconds one layer takes for a batch, by its tokens: (tokens, seconds), tokens rising.

    `prompt` for the prompt tokens of a batch together, `decode` for its decoding sequences. Between
    two points the time is linear, below the first from (0, 0), beyond the last by its slope. A step
    takes `prompt_step_s`, or `decode_step_s`, however many layers it runs; see `held`.
    """

    prompt: Points
    decode: Points
    prompt_step_s: float = 0.0
    decode_step_s: float = 0.0

    def __post_init__(self) -> None:
        for key in ("prompt_step_s", "decode_step_s"):
            if not 0 <= getattr(self, key) < float("inf"):
                raise InvalidProblem(
                    f"layer_times.{key} is {getattr(self, key):g}; it must be 0 or more"
                )
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
            for (tokens, _), (following, _) in pairwise(points):
                if not tokens < following:
                    raise InvalidProblem(
                        f"layer_times.{phase} has {following:g} tokens after {tokens:g}; "
                        "sort the points by tokens, each once"
                    )

    def held(self, layers: int) -> "LayerTimes":
        """For a stage of so many layers: what a step takes beside them, dealt to them. So many
        times the seconds of these is a whole step."""
        if self.prompt_step_s == self.decode_step_s == 0:
            return self
        return LayerTimes(
            prompt=tuple((size, s + self.prompt_step_s / layers) for size, s in self.prompt),
            decode=tuple((size, s + self.decode_step_s / layers) for size, s in self.decode),
        )

    def prompt_s(self, tokens: float) -> float:
        """Seconds one layer takes for that many prompt tokens in a batch."""
        return _interpolated(self.prompt, tokens)

    def decode_s(self, sequences: float) -> float:
        """Seconds one layer takes for one token of each of that many sequences."""
        return _interpolated(self.decode, sequences)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """What the published system puts into one batch, by layers held: entry j-1 for j layers."""

    prompt_max_requests: tuple[int, ...]
    decode_max_tokens: tuple[int, ...]

    def __post_init__(self) -> None:
        for key in ("prompt_max_requests", "decode_max_tokens"):
            for layers, value in enumerate(getattr(self, key), start=1):
                if value < 1:
                    raise InvalidProblem(
                        f"batch_limits.{key} for {layers} layers is {value}; it must be 1 or more"
                    )


def _interpolated(points: Points, amount: float) -> float:
    if amount <= 0:
        return 0.0
    upper = min(bisect_left(points, amount, key=lambda point: point[0]), len(points) - 1)
    x1, y1 = points[upper]
    x0, y0 = points[upper - 1] if upper > 0 else (0.0, 0.0)
    return y0 + (y1 - y0) * (amount - x0) / (x1 - x0)
