"""What a row of the comparison stands for: a cluster to emulate, and the same for the simulator."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from benchmarks.emulated.drive import Arriving, Saturated
from benchmarks.emulated.virtual_cluster import ClusterSetup
from planner.domain.placement import Placement
from planner.domain.plan import Plan
from planner.domain.problem import Problem
from planner.domain.serving_policy import ServingPolicy
from planner.max_flow import max_flow, routing_weights
from planner.simulator.forecast import Forecast
from planner.simulator.simulate import HOST_COPY_S_PER_BYTE, SimulationOptions, simulate
from planner.workload.arrivals import poisson, requests
from planner.workload.demand import Arrivals, Backlog, Demand
from planner.workload.lengths import scaled_lengths
from planner.workload.request import Lengths
from runtime.protocol.engine_options import EngineOptions

DecodeCap: TypeAlias = Literal["adaptive", "off"] | float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One problem with the placements to serve it by; the published one without partial
    inference."""

    problem: Problem
    published: Placement
    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One run. `rate_per_s` None: saturated. `decode_cap` None: what the policy says."""

    label: str
    policy: str
    rate_per_s: float | None
    decode_cap: DecodeCap
    warm_up_s: float
    window_s: float


def setup_of(case: Case, row: Row, parameters: Mapping[str, Any]) -> ClusterSetup:
    policy = parameters["policies"][row.policy]
    placement, partial = _placement(case, policy)
    limits = policy["batch_limits"]
    options = EngineOptions.model_validate(policy["options"] | _cap_options(row.decode_cap))
    return ClusterSetup(
        problem=case.problem,
        placement=placement,
        partial_inference=partial,
        routing_weights=_weights(case, policy),
        router="iwrr",
        options={
            name: _limited(options, case.problem, name, layers=len(held)) if limits else options
            for name, held in placement.layers.items()
        },
        transmission=policy["transmission"],
        host_copy_s_per_byte=HOST_COPY_S_PER_BYTE,
        kv_high_water=parameters["kv_high_water"],
        page_tokens=parameters["page_tokens"],
        max_batch_tokens=policy["max_batch_tokens"],
        max_context_tokens=parameters["max_context_tokens"],
        seed=parameters["seed"],
    )


def load_of(case: Case, row: Row, parameters: Mapping[str, Any]) -> Saturated | Arriving:
    lengths = _lengths(case, parameters)
    if row.rate_per_s is None:
        return Saturated(lengths, prompts_in_flight=parameters["prompts_in_flight"])
    times = poisson(rate_per_s=row.rate_per_s, seed=parameters["seed"])
    return Arriving(requests(times, lengths))


def forecast_of(case: Case, row: Row, parameters: Mapping[str, Any]) -> Forecast:
    """The simulator's, of the same requests in the same window."""
    policy = parameters["policies"][row.policy]
    placement, partial = _placement(case, policy)
    lengths = _lengths(case, parameters)
    demand: Demand = Backlog(lengths=lengths, prompts_in_flight=parameters["prompts_in_flight"])
    if row.rate_per_s is not None:
        times = poisson(rate_per_s=row.rate_per_s, seed=parameters["seed"])
        demand = Arrivals(requests=requests(times, lengths))
    fields = {key: None if value == "none" else value for key, value in policy["forecast"].items()}
    served = ServingPolicy(**fields, kv_high_water=parameters["kv_high_water"])
    if row.decode_cap not in (None, "adaptive"):
        divisor = None if row.decode_cap == "off" else float(row.decode_cap)
        served = replace(served, decode_cap_divisor=divisor, measured_micro_batches=None)
    return simulate(
        case.problem,
        placement=placement,
        routing_weights=_weights(case, policy),
        demand=demand,
        policy=served,
        partial_inference=partial,
        options=SimulationOptions(
            warm_up_s=row.warm_up_s,
            window_s=row.window_s,
            page_tokens=parameters["page_tokens"],
            seed=parameters["seed"],
        ),
    )


def _placement(case: Case, policy: Mapping[str, Any]) -> tuple[Placement, bool]:
    if policy["placement"] == "published":
        return case.published, False
    return case.plan.placement, case.plan.partial_inference


def _weights(case: Case, policy: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    if policy["weights"] == "plan":
        return {source: dict(targets) for source, targets in case.plan.routing_weights.items()}
    placement, partial = _placement(case, policy)
    return routing_weights(max_flow(case.problem, placement, partial_inference=partial))


def _lengths(case: Case, parameters: Mapping[str, Any]) -> Iterator[Lengths]:
    return scaled_lengths(case.problem.workload, seed=parameters["seed"])


def _cap_options(cap: DecodeCap) -> dict[str, Any]:
    if cap is None:
        return {}
    return {"decode_cap": cap} if isinstance(cap, str) else {"micro_batches": cap}


def _limited(options: EngineOptions, problem: Problem, name: str, *, layers: int) -> EngineOptions:
    """With the published limits of a node's batches."""
    limits = problem.profile_of(name).batch_limits
    if limits is None:
        raise ValueError(f"the profile of {name!r} has no batch limits; give --batch-limits")
    return options.model_copy(
        update={
            "max_prompts": limits.prompt_max_requests[layers - 1],
            "decode_cap": limits.decode_max_tokens[layers - 1],
        }
    )
