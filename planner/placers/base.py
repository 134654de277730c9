"""What every placement search has in common: options, progress, cancel."""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, Literal, Protocol

from planner.domain.errors import PlannerError
from planner.domain.limits import POSITIVE, check_fields
from planner.domain.placement import LayerRange
from planner.domain.plan import Incumbent
from planner.domain.rules import PlacementRules
from planner.placers.solvers.base import SolverName

START = "start"  # the placer of a placement that was given to a search
# The methods by name, with the labels that people choose them by; `choice.METHODS` has each.
PLACERS = {
    "auto": "Automatic: all of them in turn",
    "milp": "MILP of the Helix paper",
    "stage-patterns": "Stage patterns, an integer program",
    "region-chain": "Chains of regions",
    "stage-annealing": "Annealing of stages",
    "interval-annealing": "Annealing of staggered ranges",
}
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
    """The token of a search that ends by itself."""

    def is_cancelled(self) -> bool:
        return False


NEVER = NeverCancelled()


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """What every method of a search must honour.

    `partial_inference` is Helix §4.4, constraint 4. `solver` is for the MILP and for
    pattern programs. `prune_degree` is the average number of outgoing links between
    nodes that each keeps in the MILP (None: no pruning). A search ends when the flow is within
    `relative_gap` (0 to 1) of a proven bound.
    """

    partial_inference: bool = True
    rules: PlacementRules = field(default_factory=PlacementRules)
    solver: SolverName = "auto"
    prune_degree: Annotated[float, POSITIVE] | None = None
    relative_gap: float = 1e-4

    def __post_init__(self) -> None:
        check_fields(self, error=InvalidOptions)
        if not 0 <= self.relative_gap < 1:
            raise InvalidOptions(
                f"relative_gap is {self.relative_gap}; it must be 0 or more and below 1"
            )


def equal_split(num_layers: int, num_stages: int) -> list[LayerRange]:
    """Consecutive stages whose lengths differ by at most one layer, the longer ones first."""
    length, longer = divmod(num_layers, num_stages)
    firsts = [stage * length + min(stage, longer) for stage in range(num_stages + 1)]
    return [LayerRange(first=first, end=end) for first, end in pairwise(firsts)]
