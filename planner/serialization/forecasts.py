"""The forecast in a plan file."""

from planner.document import Section
from planner.domain.plan_forecast import PlanForecast
from planner.serialization.records import record_from


def forecast_from(section: Section) -> PlanForecast:
    """Files of before lack the share of nodes that was simulated, and what policies did not have
    yet: fields with defaults.
    """
    forecast = record_from(section, PlanForecast)
    for key in ("mean_prompt_tokens", "mean_output_tokens"):
        section.positive_number(key)
    if forecast.simulated is not None and section.section("simulated").has("simulated_share"):
        section.section("simulated").positive_number("simulated_share")
    return forecast
