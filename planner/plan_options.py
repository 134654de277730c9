"""What a search is told: which placements it makes, by which rules, for how long and what for."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from planner.domain.instance import BACKENDS, PLAN_METHODS, Backend, PlanMethod
from planner.domain.placement import Placement
from planner.domain.plan import Plan
from planner.domain.plan_forecast import LimitPercentile, Objective
from planner.domain.problem import Problem
from planner.domain.rules import PlacementRules
from planner.domain.serving_policy import RUNTIME_POLICY, ServingPolicy
from planner.objectives.goal import check_goal_options
from planner.placers.base import InvalidOptions, SearchOptions
from planner.placers.choice import PlacerName, PlacerOptions
from planner.placers.petals import place_petals
from planner.placers.separate_pipelines import place_separate_pipelines
from planner.placers.solvers.choice import SolverName
from planner.placers.swarm import place_swarm

BASELINES: dict[str, Callable[[Problem], Placement | None]] = {
    "separate_pipelines": place_separate_pipelines,
    "swarm": place_swarm,
    "petals": place_petals,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """How to search.

    `placer` is "auto", which uses all of them in turn, or the name of one. `warm_start` is "best"
    (of the baselines), "none", or the name of one of `baselines`. The search ends within
    `relative_gap` of a proven bound. `prune_degree` keeps that many links per node on average in
    the MILP; None keeps all.

    `objective`: "decode" makes the forecast decode throughput under `policy` large, "flow" the
    paper's max flow, "latency" the throughput at which the request at `limit_percentile` keeps to
    `ttft_limit_s` and `tpot_limit_s`, "cost" the tokens per price of the nodes in use;
    "fewest_nodes" leaves as many nodes idle as `demand_tokens_per_s` of decode throughput allows.

    `method`, `backend` and `tensor_parallel`, the degree of every instance (None: the best of each
    machine), are for `planner.plan_instances`; here every node runs stages.
    """

    time_limit_s: float = 60.0
    objective: Objective = "decode"
    ttft_limit_s: float | None = None
    tpot_limit_s: float | None = None
    limit_percentile: LimitPercentile = "p50"
    demand_tokens_per_s: float | None = None
    policy: ServingPolicy = RUNTIME_POLICY
    partial_inference: bool = True
    placer: PlacerName = "auto"
    solver: SolverName = "auto"
    prune_degree: float | None = None
    warm_start: str = "best"
    relative_gap: float = 1e-3
    baselines: tuple[str, ...] = tuple(BASELINES)
    seed: int = 0
    rules: PlacementRules = field(default_factory=PlacementRules)
    method: PlanMethod = "pipelines"
    backend: Backend = "helix"
    tensor_parallel: int | None = None

    def __post_init__(self) -> None:
        self._check_method()
        for name in self.baselines:
            if name not in BASELINES:
                raise InvalidOptions(
                    f"baselines has {name!r}; use names of: {', '.join(BASELINES)}"
                )
        if self.warm_start not in ("best", "none", *self.baselines):
            raise InvalidOptions(
                f"warm_start is {self.warm_start!r}; use one of: "
                f"{', '.join(('best', 'none', *self.baselines))}"
            )
        check_goal_options(
            objective=self.objective,
            ttft_limit_s=self.ttft_limit_s,
            tpot_limit_s=self.tpot_limit_s,
            demand_tokens_per_s=self.demand_tokens_per_s,
            limit_percentile=self.limit_percentile,
        )
        self.search_options(time_limit_s=self.time_limit_s)
        self.placer_options(known_upper_bound_tokens_per_s=math.inf)

    def _check_method(self) -> None:
        if self.method not in PLAN_METHODS:
            raise InvalidOptions(
                f"method is {self.method!r}; use one of: {', '.join(PLAN_METHODS)}"
            )
        if self.backend not in BACKENDS:
            raise InvalidOptions(f"backend is {self.backend!r}; use one of: {', '.join(BACKENDS)}")
        if self.tensor_parallel is not None and self.tensor_parallel < 1:
            raise InvalidOptions(
                f"tensor_parallel is {self.tensor_parallel}; give a degree of 1 or more, or none"
            )
        if self.method != "pipelines" and self.objective != "decode":
            raise InvalidOptions(
                f"the method {self.method!r} compares by decode throughput, not by "
                f"{self.objective!r}; choose the objective 'decode', or the method 'pipelines'"
            )

    @property
    def for_flow(self) -> "PlanOptions":
        """The same search for the largest flow."""
        return replace(
            self,
            method="pipelines",
            objective="flow",
            ttft_limit_s=None,
            tpot_limit_s=None,
            limit_percentile="p50",
            demand_tokens_per_s=None,
        )

    def for_running(self, plan: Plan) -> "PlanOptions":
        """The same options under the conditions that `plan` runs with.

        A plan made without partial inference never runs with it. Its hop limit holds where these
        options have none.
        """
        max_hops = plan.max_hops if self.rules.max_hops is None else self.rules.max_hops
        return replace(
            self,
            partial_inference=self.partial_inference and plan.partial_inference,
            rules=replace(self.rules, max_hops=max_hops),
        )

    def placer_options(self, *, known_upper_bound_tokens_per_s: float) -> PlacerOptions:
        return PlacerOptions(
            placer=self.placer,
            solver=self.solver,
            prune_degree=self.prune_degree,
            relative_gap=self.relative_gap,
            known_upper_bound_tokens_per_s=known_upper_bound_tokens_per_s,
        )

    def search_options(self, *, time_limit_s: float) -> SearchOptions:
        return SearchOptions(
            time_limit_s=time_limit_s,
            partial_inference=self.partial_inference,
            seed=self.seed,
            rules=self.rules,
        )
