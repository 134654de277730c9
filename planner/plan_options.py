"""Options of a search: its method, rules, time limit and objective."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated

from planner.domain.instance import Backend, PlanMethod
from planner.domain.limits import POSITIVE, Range
from planner.domain.option import Option
from planner.domain.placement import Placement
from planner.domain.plan import Plan
from planner.domain.plan_forecast import LimitPercentile, Objective
from planner.domain.problem import Problem
from planner.domain.serving_policy import RUNTIME_POLICY, ServingPolicy
from planner.placers.base import GAP, PLACERS, InvalidOptions, SearchOptions
from planner.placers.petals import place_petals
from planner.placers.separate_pipelines import place_separate_pipelines
from planner.placers.swarm import place_swarm

BASELINES: dict[str, Callable[[Problem], Placement | None]] = {
    "separate_pipelines": place_separate_pipelines,
    "swarm": place_swarm,
    "petals": place_petals,
}

# A run of the site occupies a worker for its time limit.
MIN_TIME_LIMIT_S, MAX_TIME_LIMIT_S = 1.0, 4 * 3600.0
MAX_SEED = 2**31 - 1
_TIME_LIMIT = Option(
    "Time limit",
    "You may accept the best plan so far at any moment.",
    unit="seconds",
    least=MIN_TIME_LIMIT_S,
    most=MAX_TIME_LIMIT_S,
)
_OBJECTIVE = Option(
    "Objective",
    choices={
        "decode": "Most decode throughput, as forecast",
        "flow": "Most flow, the Helix paper's objective",
        "latency": "Most decode throughput within latency limits",
        "cost": "Most tokens for the price of the nodes in use",
        "fewest_nodes": "Fewest nodes that meet a demand",
    },
)
_PLACER = Option("Placer", choices=PLACERS)
_BASELINES = Option(
    "Baselines to begin with",
    choices={"separate_pipelines": "Separate pipelines", "swarm": "Swarm", "petals": "Petals"},
)
_WARM_START = Option(
    "The solver improves",
    choices={"best": "The best baseline or plan known", "none": "Nothing", **_BASELINES.choices},
)
_METHOD = Option(
    "Serve by",
    "Instances are weighed by decode throughput only.",
    choices={
        "pipelines": "Pipelines: every node runs some layers",
        "instances": "Instances: every machine that can runs the whole model",
        "mixed": "Mixed: whichever is forecast to write most",
    },
)
_BACKEND = Option(
    "Instances run by",
    choices={
        "helix": "HelixWeb's engine",
        "vllm": "vllm serve",
        "transformers": "transformers serve",
    },
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions(SearchOptions):
    """Options of a search for a plan.

    `placer` is "auto", which uses all of them in turn, or the name of one. `warm_start` is "best"
    (of the baselines), "none", or the name of one of `baselines`.

    `objective`: "decode" makes the forecast decode throughput under `policy` large, "flow" the
    paper's max flow, "latency" the throughput at which the request at `limit_percentile` keeps to
    `ttft_limit_s` and `tpot_limit_s`, "cost" the tokens per price of the nodes in use;
    "fewest_nodes" leaves as many nodes idle as `demand_tokens_per_s` of decode throughput allows.

    `method`, `backend` and `tensor_parallel`, the degree of every instance (None: the best of each
    machine), are for `planner.plan_instances`; here every node runs stages.
    """

    time_limit_s: Annotated[float, POSITIVE, _TIME_LIMIT] = 60.0
    objective: Annotated[Objective, _OBJECTIVE] = "decode"
    ttft_limit_s: Annotated[
        Annotated[float, POSITIVE] | None,
        Option(
            "TTFT of the median request, at most",
            "Give this limit, the other, or both.",
            unit="seconds",
            least=0,
        ),
    ] = None
    tpot_limit_s: Annotated[
        Annotated[float, POSITIVE] | None,
        Option(
            "TPOT of the median request, at most",
            "Seconds for each token after the first.",
            unit="seconds",
            least=0,
        ),
    ] = None
    limit_percentile: LimitPercentile = "p50"
    demand_tokens_per_s: Annotated[
        Annotated[float, POSITIVE] | None,
        Option(
            "Demand",
            "Nodes that are not needed for it are left idle.",
            unit="decode tokens/s",
            least=0,
        ),
    ] = None
    policy: ServingPolicy = RUNTIME_POLICY
    placer: Annotated[str, _PLACER] = "auto"
    warm_start: Annotated[str, _WARM_START] = "best"
    relative_gap: Annotated[float, GAP] = 1e-3
    baselines: Annotated[tuple[str, ...], _BASELINES] = tuple(BASELINES)
    seed: Annotated[
        int,
        Range(0),
        Option("Seed", "Another seed searches along other ways.", least=0, most=MAX_SEED),
    ] = 0
    method: Annotated[PlanMethod, _METHOD] = "pipelines"
    backend: Annotated[Backend, _BACKEND] = "helix"
    tensor_parallel: Annotated[
        Annotated[int, Range(1)] | None,
        Option(
            "GPUs of an instance",
            "If not given: the best number on each machine.",
            least=1,
            most=64,
        ),
    ] = None

    def __post_init__(self) -> None:
        SearchOptions.__post_init__(self)
        self._check_method()
        if self.placer not in PLACERS:
            raise InvalidOptions(f"placer is {self.placer!r}; use one of: {', '.join(PLACERS)}")
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
        self._check_goal()

    def _check_method(self) -> None:
        if self.method != "pipelines" and self.objective != "decode":
            raise InvalidOptions(
                f"the method {self.method!r} compares by decode throughput, not by "
                f"{self.objective!r}; choose the objective 'decode', or the method 'pipelines'"
            )

    def _check_goal(self) -> None:
        """Limits that are missing, or of another objective."""
        for key, owner in (
            ("ttft_limit_s", "latency"),
            ("tpot_limit_s", "latency"),
            ("demand_tokens_per_s", "fewest_nodes"),
        ):
            value = getattr(self, key)
            if value is not None and self.objective != owner:
                raise InvalidOptions(
                    f"{key} is {value} but the objective is {self.objective!r}; it is for "
                    f"{owner!r} only"
                )
        percentile = self.limit_percentile
        if percentile != "p50" and self.objective != "latency":
            raise InvalidOptions(
                f"limit_percentile is {percentile!r} but the objective is {self.objective!r}; it "
                "is for 'latency' only"
            )
        if self.objective == "latency" and self.ttft_limit_s is None and self.tpot_limit_s is None:
            raise InvalidOptions(
                "objective is 'latency' without a limit; give ttft_limit_s or "
                "tpot_limit_s, or use 'decode'"
            )
        if self.objective == "fewest_nodes" and self.demand_tokens_per_s is None:
            raise InvalidOptions(
                "objective is 'fewest_nodes' without a demand; give demand_tokens_per_s"
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
