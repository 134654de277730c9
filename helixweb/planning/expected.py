"""Expected output of a plan, to compare measurements with."""

from dataclasses import dataclass

from django.db.models import QuerySet

from helixweb.planning.models import Plan, Simulation
from planner import Plan as DomainPlan
from planner import instance_nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Decode tokens/s while requests always wait, and medians; None: not known."""

    decode_tokens_per_s: float
    ttft_s: float | None = None
    tpot_s: float | None = None


def offline_simulations(row: Plan) -> QuerySet[Simulation]:
    """Ended simulations under the runtime's policy, newest first."""
    return row.simulations.filter(
        workload="backlog", policy="runtime", forecast__isnull=False
    ).order_by("-pk")


def output_forecast(row: Plan, plan: DomainPlan) -> float | None:
    """Output tokens/s while requests always wait; None: not forecast."""
    return next((one.decode_tokens_per_s for one in output_forecasts(row, plan)), None)


def output_forecasts(row: Plan, plan: DomainPlan) -> list[Output]:
    """The same by each way there is, the most reliable first.

    Simulations, the newest first; then what the search itself found. Of a plan with instances,
    which those simulations take for stages, what was predicted of these.
    """
    if plan.instances:
        of_instances = _of_instances(plan)
        return [] if of_instances is None else [Output(decode_tokens_per_s=of_instances)]
    figures = offline_simulations(row).values_list(
        "forecast__decode_tokens_per_s", "forecast__ttft__p50_s", "forecast__tpot__p50_s"
    )
    if plan.forecast is None:
        found = []
    else:
        simulated, estimated = plan.forecast.simulated, plan.forecast.estimated
        found = [(estimated.decode_tokens_per_s, estimated.ttft_s, estimated.tpot_s)]
        if simulated is not None and simulated.requests_per_s is None:
            medians = simulated.ttft.p50_s, simulated.tpot.p50_s
            found.insert(0, (simulated.decode_tokens_per_s, *medians))
    return [
        Output(decode_tokens_per_s=rate, ttft_s=ttft_s, tpot_s=tpot_s)
        for rate, ttft_s, tpot_s in (*figures, *found)
    ]


def _of_instances(plan: DomainPlan) -> float | None:
    """Together with the pipelines beside them, of which it is known."""
    of_pipelines = pipelines_tokens_per_s(plan)
    has_pipelines = bool(plan.placement.layers.keys() - instance_nodes(plan.instances))
    if has_pipelines and of_pipelines is None:
        return None
    return sum(one.output_tokens_per_s for one in plan.instances) + (of_pipelines or 0.0)


def pipelines_tokens_per_s(plan: DomainPlan) -> float | None:
    """Output tokens/s that were forecast of the pipelines beside the instances."""
    choice = plan.method_choice
    if choice is None:
        return None
    of_all = next(
        (one.output_tokens_per_s for one in choice.candidates if one.method == choice.chosen), None
    )
    rest = (of_all or 0.0) - sum(one.output_tokens_per_s for one in plan.instances)
    return rest if rest > 0 else None
