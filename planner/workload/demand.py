"""Demand of a simulation: requests that arrive, or a backlog that is never empty."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from planner.domain.limits import Range, check_fields
from planner.workload.request import InvalidWorkload, Lengths, Request

_LEAST_PROMPTS_IN_FLIGHT = 20
_NODES_PER_PROMPT = 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Arrivals:
    """Requests in the order in which they arrive; they wait at the coordinator for KV room."""

    requests: Iterator[Request]


def prompts_in_flight(nodes: int) -> int:
    """Number of prompts at a time that a backlog admits on so many nodes."""
    return max(_LEAST_PROMPTS_IN_FLIGHT, nodes // _NODES_PER_PROMPT)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Backlog:
    """Saturation: a request is let in whenever there is KV room and few prompts are under way.

    Each component of a placement may have `prompts_in_flight` prompts under way; None is what the
    function of that name says of all the placement's nodes.
    `requests_in_flight` limits the concurrency too: a closed loop of so many requests.
    """

    lengths: Iterator[Lengths]
    prompts_in_flight: Annotated[int, Range(1)] | None = None
    requests_in_flight: Annotated[int, Range(1)] | None = None

    def __post_init__(self) -> None:
        check_fields(self, error=InvalidWorkload)


Demand: TypeAlias = Arrivals | Backlog
