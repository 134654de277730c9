"""Base of every placement search: options, progress, cancel."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, Literal, Protocol, TypeAlias

from planner.domain.errors import PlannerError
from planner.domain.limits import POSITIVE, check_fields
from planner.domain.option import Option
from planner.domain.placement import LayerRange
from planner.domain.plan import Incumbent
from planner.domain.rules import PlacementRules
from planner.placers.solvers.base import SolverName

START = "start"  # the placer of a placement that was given to a search
# The methods by name, with the labels that people choose them by; `portfolio.METHODS` has each.
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


Progress: TypeAlias = Callable[[Incumbent], None]
"""Called for every better placement and for every better bound."""


class NeverCancelled:
    """The token of a search that ends by itself."""

    def is_cancelled(self) -> bool:
        return False


NEVER = NeverCancelled()


_SOLVER = Option(
    "Solver",
    choices={
        "auto": "Automatic: Gurobi where its licence allows, else HiGHS",
        "gurobi": "Gurobi only",
        "highs": "HiGHS only",
    },
)
GAP = Option("Stop this close to the proven bound", unit="ratio", least=0, most=0.5)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """Options of every method of a search.

    `partial_inference` is Helix §4.4, constraint 4. `solver` is for the MILP and for
    pattern programs. `prune_degree` is the average number of outgoing links between
    nodes that each keeps in the MILP (None: no pruning). A search ends when the flow is within
    `relative_gap` (0 to 1) of a proven bound.
    """

    partial_inference: Annotated[
        bool, Option("Partial inference: a node may run only some of the layers it holds")
    ] = True
    rules: Annotated[PlacementRules, Option("Rules for every placement")] = field(
        default_factory=PlacementRules
    )
    solver: Annotated[SolverName, _SOLVER] = "auto"
    prune_degree: Annotated[
        Annotated[float, POSITIVE] | None,
        Option(
            "Links that the MILP keeps per node, on average",
            "If not given: all. A pruned search proves no bound.",
            least=1.0,
            most=1000.0,
        ),
    ] = None
    relative_gap: Annotated[float, GAP] = 1e-4

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
