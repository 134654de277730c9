"""Record of one request of a simulation."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from planner.domain.pipeline import Pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """A request that has finished. `number` counts requests as they were let in, from 0.

    Times in seconds of the simulation. `attempts` is 1 more than how often it was preempted. Way
    and waits are those of the last attempt: `waits_s` has for every stage the seconds that its
    prompt's chunks and its decodes waited for steps there, added up.
    """

    number: int
    arrival_s: float
    admitted_s: float
    first_token_s: float
    finished_s: float
    prompt_tokens: int
    output_tokens: int
    attempts: int
    pipeline: Pipeline
    waits_s: tuple[float, ...]


OnRequest: TypeAlias = Callable[[RequestRecord], None]
