"""Options of a replanning."""

from dataclasses import dataclass, field
from typing import Annotated

from planner.domain.limits import POSITIVE, Range, check_fields
from planner.placers.base import InvalidOptions
from planner.plan_options import PlanOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplanOptions:
    """Options of a replanning; `plan` has those of the search from scratch, its rules and seed.

    `time_limit_s` is for everything; the search from scratch uses at most a third of it.
    `budget_bytes` limits what the chosen answer moves (None: as much as it takes). Around the
    running placement at most `attempts` annealings are tried for each budget, so a search that the
    clock does not end gives the same answer again.
    """

    plan: PlanOptions = field(default_factory=PlanOptions)
    time_limit_s: Annotated[float, POSITIVE] = 10.0
    budget_bytes: Annotated[float, Range(0)] | None = None
    attempts: Annotated[int, Range(0)] = 200

    def __post_init__(self) -> None:
        check_fields(self, error=InvalidOptions)
