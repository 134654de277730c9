"""How to replan."""

import math
from dataclasses import dataclass, field

from planner.placers.base import InvalidOptions
from planner.plan_options import PlanOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplanOptions:
    """How to replan: `plan` for the search from scratch, its rules and its seed.

    `time_limit_s` is for everything; a third of it at most goes to the search from scratch.
    `budget_bytes` limits what the chosen answer moves (None: as much as it takes). Around the
    running placement at most `attempts` annealings are tried for each budget, so a search that the
    clock does not end gives the same answer again.
    """

    plan: PlanOptions = field(default_factory=PlanOptions)
    time_limit_s: float = 10.0
    budget_bytes: float | None = None
    attempts: int = 200

    def __post_init__(self) -> None:
        if not 0 < self.time_limit_s < math.inf:
            raise InvalidOptions(
                f"time_limit_s is {self.time_limit_s}; it must be a finite number above 0"
            )
        if self.budget_bytes is not None and not self.budget_bytes >= 0:
            raise InvalidOptions(f"budget_bytes is {self.budget_bytes}; it must be 0 or more")
        if self.attempts < 0:
            raise InvalidOptions(f"attempts is {self.attempts}; it must be 0 or more")
