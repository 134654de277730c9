"""A checked answer: placement, flow, routing weights, and how it was found."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from planner.domain.flow import Flow
from planner.domain.instance import MethodChoice, PlannedInstance
from planner.domain.limits import POSITIVE, Name, Range
from planner.domain.placement import Placement
from planner.domain.plan_forecast import PlanForecast


@dataclass(frozen=True, slots=True, kw_only=True)
class Incumbent:
    """The best placement known at one moment of a search.

    `objective_value` is its estimated `PlanForecast.value`, 0 where it is estimated to miss the
    latency limits; None where the flow is the objective. `objective_bound` is what no placement's
    value exceeds; None where none is proven.
    """

    elapsed_s: float
    flow_tokens_per_s: float
    upper_bound_tokens_per_s: float
    placer: str
    placement: Placement
    objective_value: float | None = None
    objective_bound: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A plan to deploy. `flow` was recomputed from `placement` by a second method.

    `routing_weights[u][v]` is the weight of v among u's successors (Helix §5.1); u is `source`
    or a node, v a node or `sink`. `hops` is the flow-weighted mean number of stages. `max_hops` is
    the hop limit it was made under (None: no limit); weights computed later keep it. `forecast` is
    there where it was the objective. Nodes with `instances` hold all layers, each in a component of
    its own, and run them by whole-model engines; `method_choice` says why, or why not.
    """

    problem_name: Name
    model_name: Name
    num_layers: Annotated[int, Range(1)]
    partial_inference: bool
    placement: Placement
    flow: Flow
    upper_bound_tokens_per_s: float
    hops: float
    routing_weights: Mapping[str, Mapping[str, Annotated[float, POSITIVE]]]
    placer: str
    solver: str
    stop_reason: str
    elapsed_s: float
    max_hops: Annotated[int, Range(1)] | None = None
    forecast: PlanForecast | None = None
    instances: tuple[PlannedInstance, ...] = ()
    method_choice: MethodChoice | None = None

    @property
    def gap(self) -> float:
        """(bound - flow) / bound, 0 to 1."""
        if self.upper_bound_tokens_per_s <= 0:
            return 0.0
        return max(0.0, 1.0 - self.flow.value_tokens_per_s / self.upper_bound_tokens_per_s)
