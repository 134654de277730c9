"""One request to come, and the error for what cannot be one."""

from dataclasses import dataclass

from planner.domain.errors import PlannerError


class InvalidWorkload(PlannerError, ValueError):
    """A trace, rate or request outside its range; the message names the row or value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Tokens of a prompt and of its answer."""

    prompt_tokens: int
    output_tokens: int

    def __post_init__(self) -> None:
        for key in ("prompt_tokens", "output_tokens"):
            value = getattr(self, key)
            if value < 1:
                raise InvalidWorkload(f"{key} is {value}; a request has 1 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request that reaches the coordinator at `arrival_s`."""

    arrival_s: float
    lengths: Lengths

    def __post_init__(self) -> None:
        if not self.arrival_s >= 0:
            raise InvalidWorkload(f"arrival_s is {self.arrival_s}; it must be 0 or more")
