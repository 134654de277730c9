"""One request to come, and the error for what cannot be one."""

from dataclasses import dataclass
from typing import Annotated

from planner.domain.errors import PlannerError
from planner.domain.limits import Range, check_fields


class InvalidWorkload(PlannerError, ValueError):
    """A trace, rate or request outside its range; the message names the row or value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Tokens of a prompt and of its answer."""

    prompt_tokens: Annotated[int, Range(1)]
    output_tokens: Annotated[int, Range(1)]

    def __post_init__(self) -> None:
        check_fields(self, error=InvalidWorkload)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request that reaches the coordinator at `arrival_s`."""

    arrival_s: Annotated[float, Range(0)]
    lengths: Lengths

    def __post_init__(self) -> None:
        check_fields(self, error=InvalidWorkload)
