"""What a plan is expected to put out, which the measured numbers are held against."""

from helixweb.planning.models import Plan, Simulation
from planner.domain.instance import instance_nodes
from planner.domain.plan import Plan as DomainPlan


def output_forecast(row: Plan, plan: DomainPlan) -> float | None:
    """Output tokens/s while requests always wait; None: not forecast."""
    return next(iter(output_forecasts(row, plan)), None)


def output_forecasts(row: Plan, plan: DomainPlan) -> list[float]:
    """The same by each way there is, the most reliable first.

    Simulations under the runtime's policy, the newest first; then what the search itself found. Of
    a plan with instances, which those simulations take for stages, what was predicted of these.
    """
    if plan.instances:
        of_instances = _of_instances(plan)
        return [] if of_instances is None else [of_instances]
    rows = row.simulations.filter(
        workload=Simulation.Workload.BACKLOG,
        policy=Simulation.Policy.RUNTIME,
        forecast__isnull=False,
    ).order_by("-pk")
    found = list(rows.values_list("forecast__decode_tokens_per_s", flat=True))
    if plan.forecast is not None:
        simulated = plan.forecast.simulated
        if simulated is not None and simulated.requests_per_s is None:
            found.append(simulated.decode_tokens_per_s)
        found.append(plan.forecast.estimated.decode_tokens_per_s)
    return found


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
