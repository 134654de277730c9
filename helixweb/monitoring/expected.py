"""What a plan is expected to put out, which the measured numbers are held against."""

from helixweb.deployment.services.instance_orders import pipelines_tokens_per_s
from helixweb.planning.models import Plan, Simulation
from helixweb.planning.simulating import forecast_from_json
from planner.domain.instance import instance_nodes
from planner.domain.plan import Plan as DomainPlan


def output_forecast(row: Plan, plan: DomainPlan) -> float | None:
    """Output tokens/s while requests always wait; None: nobody has forecast it.

    By the newest simulation under the runtime's policy, else by what the search itself found. Of a
    plan with instances, which that simulation takes for stages, by what was predicted of these.
    """
    if plan.instances:
        return _of_instances(plan)
    simulated = (
        row.simulations.filter(
            workload=Simulation.Workload.BACKLOG,
            policy=Simulation.Policy.RUNTIME,
            forecast__isnull=False,
        )
        .order_by("-pk")
        .first()
    )
    if simulated is not None and simulated.forecast is not None:
        return forecast_from_json(simulated.forecast).decode_tokens_per_s
    if plan.forecast is None:
        return None
    if plan.forecast.simulated is not None:
        return plan.forecast.simulated.decode_tokens_per_s
    return plan.forecast.estimated.decode_tokens_per_s


def _of_instances(plan: DomainPlan) -> float | None:
    """Together with the pipelines beside them, of which it is known."""
    of_pipelines = pipelines_tokens_per_s(plan)
    has_pipelines = bool(plan.placement.layers.keys() - instance_nodes(plan.instances))
    if has_pipelines and of_pipelines is None:
        return None
    return sum(one.output_tokens_per_s for one in plan.instances) + (of_pipelines or 0.0)
