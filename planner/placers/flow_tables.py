"""A problem as integer arrays, for the annealing loops.

A flow unit is so small that rounding down costs 1e-8 of the flow, and so large that sums of all
nodes' flows stay far below 2**63.
"""

from dataclasses import dataclass

import numpy as np

from planner.capacity import allowed_limits
from planner.domain.cluster import COORDINATOR
from planner.domain.problem import Problem
from planner.domain.rules import PlacementRules
from planner.link_matrix import Floats, link_capacities_tokens_per_s, shared_tokens_per_s
from planner.placers.loops import IntegerArray
from planner.speed_table import speeds_by_layers

_UNITS_OF_BOUND = 2**36
# Sums of values that were rounded down one by one must still reach a target that equals them.
_ROUNDING_SHARE = 2**-26


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowTables:
    """The free nodes of a problem (not pinned, not excluded), numbered as in `names`.

    `open_layers` counts those of the `num_layers` that no pin holds.
    `speeds_NJ[i, j]` is T_j, `links[i, k]` the capacity from i to k, index n the coordinator, both
    in flow units and cut to the bound; `unit_tokens_per_s` is what one unit is; `limits_NE` as in
    `RangeTask`. Shared bandwidth is divided among `links_sharing` links.
    """

    names: tuple[str, ...]
    num_layers: int
    open_layers: int
    unit_tokens_per_s: float
    speeds_NJ: IntegerArray
    limits_NE: IntegerArray
    links: IntegerArray
    region_N: IntegerArray
    links_sharing: int

    def target(self, tokens_per_s: float) -> int:
        """A target flow in flow units, at least 1."""
        return max(1, int(tokens_per_s / self.unit_tokens_per_s * (1 - _ROUNDING_SHARE)))

    @property
    def ends_cost_layers(self) -> bool:
        """True if some node holds fewer layers at an end of the model than in its middle."""
        return bool((self.limits_NE != self.limits_NE[:, :1]).any())

    def speeds_at(self, *, is_first: bool, is_last: bool) -> IntegerArray:
        """`speeds_NJ` of a stage with those ends of the model: 0 for more layers than fit there."""
        limits_N = self.limits_NE[:, is_first + 2 * is_last]
        layers_J = np.arange(self.speeds_NJ.shape[1])
        speeds: IntegerArray = np.where(layers_J <= limits_N[:, None], self.speeds_NJ, 0)
        return speeds

    def links_may_bind(self) -> bool:
        """Whether any link passes less than its ends can compute."""
        most = self.speeds_NJ.max(axis=1)
        between = self.links[:-1, :-1] < np.minimum.outer(most, most)
        np.fill_diagonal(between, val=False)
        ends = (self.links[-1, :-1] < most) | (self.links[:-1, -1] < most)
        return bool(between.any() or ends.any())


def flow_tables(
    problem: Problem,
    rules: PlacementRules,
    *,
    bound_tokens_per_s: float,
    links_sharing: int = 1,
) -> FlowTables:
    """`bound_tokens_per_s` must be a proven bound on the flow, above 0.

    Loops see links one by one. Where bandwidth is shared, each link gets an equal part of it, as if
    `links_sharing` of them were in use at once.
    """
    unit = bound_tokens_per_s / _UNITS_OF_BOUND

    def in_units(tokens_per_s: Floats) -> IntegerArray:
        return (np.minimum(tokens_per_s, bound_tokens_per_s) / unit).astype(np.int64)

    nodes = [node for node in problem.cluster.nodes if node.name not in rules.pinned]
    names = [node.name for node in nodes]
    limits = [allowed_limits(problem, name, rules) for name in names]
    regions = sorted({node.region for node in nodes})
    ends = [*names, COORDINATOR]
    capacities = link_capacities_tokens_per_s(problem, ends)
    if problem.cluster.shared:
        capacities = np.minimum(capacities, shared_tokens_per_s(problem, ends) / links_sharing)
    return FlowTables(
        names=tuple(names),
        num_layers=problem.model.num_layers,
        open_layers=rules.open_layers(problem.model.num_layers),
        unit_tokens_per_s=unit,
        speeds_NJ=in_units(speeds_by_layers(problem, names, limits)),
        limits_NE=np.array(limits, dtype=np.int64).reshape(len(nodes), 4),
        links=in_units(capacities),
        region_N=np.array([regions.index(node.region) for node in nodes], dtype=np.int64),
        links_sharing=links_sharing,
    )
