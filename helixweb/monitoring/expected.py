"""What a plan is expected to put out, which the measured numbers are held against."""

from helixweb.planning.models import Plan, Simulation
from helixweb.planning.simulating import forecast_from_json
from planner.domain.plan import Plan as DomainPlan


def output_forecast(row: Plan, plan: DomainPlan) -> float | None:
    """Output tokens/s while requests always wait; None: nobody has forecast it.

    By the newest simulation under the runtime's policy, else by what the search itself found.
    """
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
