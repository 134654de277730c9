"""What every placement search has in common: options, result, progress, cancel."""

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, Protocol, get_args

from planner.domain.errors import PlannerError
from planner.domain.placement import LayerRange, Placement
from planner.domain.plan import Incumbent
from planner.domain.problem import Problem
from planner.domain.rules import PlacementRules
from planner.placers.solvers.base import SolverName

START = "start"  # the placer of a placement that was given to a search
PlacerName = Literal[
    "auto", "milp", "stage-patterns", "region-chain", "stage-annealing", "interval-annealing"
]
StopReason = Literal["heuristic", "optimal", "bound reached", "time limit", "cancelled"]


class InvalidOptions(PlannerError, ValueError):
    """A search option outside its range."""


class CancelToken(Protocol):
    """Asked often during a search; a search that sees True returns its best so far."""

    def is_cancelled(self) -> bool: ...


class Progress(Protocol):
    """Called for every better placement and for every better bound."""

    def __call__(self, incumbent: Incumbent, /) -> None: ...


class NeverCancelled:
    """The token of a search that nobody can cancel."""

    def is_cancelled(self) -> bool:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """What a search may spend and must honour; `partial_inference` is Helix §4.4, constraint 4."""

    time_limit_s: float
    partial_inference: bool = True
    seed: int = 0
    rules: PlacementRules = field(default_factory=PlacementRules)

    def __post_init__(self) -> None:
        if not 0 < self.time_limit_s < math.inf:
            raise InvalidOptions(
                f"time_limit_s is {self.time_limit_s}; it must be a finite number above 0"
            )
        if self.seed < 0:
            raise InvalidOptions(f"seed is {self.seed}; it must be 0 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacerOptions:
    """Which placer, and what the MILP and the portfolio need to know.

    `solver` is for the MILP and, where Gurobi is demanded, for pattern programs. `prune_degree` is
    the average number of outgoing links between nodes that each keeps in the MILP (None: no
    pruning). The search ends when the flow is within `relative_gap` (0 to 1) of a proven bound: the
    solver's, that of `planner.bounds`, or a tighter `known_upper_bound_tokens_per_s`.
    """

    placer: PlacerName = "auto"
    solver: SolverName = "auto"
    prune_degree: float | None = None
    relative_gap: float = 1e-4
    known_upper_bound_tokens_per_s: float = math.inf

    def __post_init__(self) -> None:
        for key, names in (("placer", get_args(PlacerName)), ("solver", get_args(SolverName))):
            if (value := getattr(self, key)) not in names:
                raise InvalidOptions(f"{key} is {value!r}; use one of: {', '.join(names)}")
        if self.prune_degree is not None and not 0 < self.prune_degree < math.inf:
            raise InvalidOptions(
                f"prune_degree is {self.prune_degree}; it must be above 0, or None for no pruning"
            )
        if not 0 <= self.relative_gap < 1:
            raise InvalidOptions(
                f"relative_gap is {self.relative_gap}; it must be 0 or more and below 1"
            )
        if not self.known_upper_bound_tokens_per_s > 0:
            raise InvalidOptions(
                f"known_upper_bound_tokens_per_s is {self.known_upper_bound_tokens_per_s}; "
                "it must be above 0, infinite if nothing is known"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The best placement found (None: none found) and the bound that this search proved."""

    placement: Placement | None
    upper_bound_tokens_per_s: float = math.inf
    stop_reason: StopReason
    solver: str


class Placer(Protocol):
    """One way to search for a placement."""

    @property
    def name(self) -> str: ...

    def search(
        self,
        problem: Problem,
        *,
        options: SearchOptions,
        start: Placement | None,
        progress: Progress,
        cancel: CancelToken,
    ) -> SearchResult: ...


def equal_split(num_layers: int, num_stages: int) -> list[LayerRange]:
    """Consecutive stages whose lengths differ by at most one layer, the longer ones first."""
    length, longer = divmod(num_layers, num_stages)
    firsts = [stage * length + min(stage, longer) for stage in range(num_stages + 1)]
    return [LayerRange(first=first, end=end) for first, end in pairwise(firsts)]
