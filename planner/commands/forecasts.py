"""A plan's forecast in a few lines of text."""

from collections.abc import Iterator

from planner.domain.plan_forecast import DEMAND_MET, Objective, Percentiles, PlanForecast

_NO_TIME_OR_ROOM = "no time was left, or no request of such lengths fits"


def value_text(objective: Objective, value: float) -> str:
    """A value of the objective, as in PlanForecast, with its unit."""
    if objective == "fewest_nodes":
        if value < 1:
            return f"{value:.3g} of the demand, by all nodes"
        return f"the demand is met, idle nodes: {value - DEMAND_MET:.0f}"
    units = {
        "flow": "tokens/s",
        "cost": "million decode tokens per unit of price",
    }
    return f"{value:.4g} {units.get(objective, 'decode tokens/s')}"


def forecast_lines(
    forecast: PlanForecast, *, not_simulated: str = _NO_TIME_OR_ROOM
) -> Iterator[str]:
    """The objective, the estimate and what was simulated, with the source of the times.

    `not_simulated` is the reason to print for a forecast without a simulation.
    """
    yield (
        f"forecast for {forecast.objective!r}: {value_text(forecast.objective, forecast.value)}; "
        f"{forecast.timing} layer times, prompts of {forecast.mean_prompt_tokens:g} and outputs of "
        f"{forecast.mean_output_tokens:g} tokens on average"
    )
    bound = forecast.upper_bound
    if bound is not None:
        gap = bound / forecast.value - 1 if forecast.value > 0 else 0.0
        yield f"no placement serves more than {bound:.1f} tokens/s for long ({gap:.1%} above this)"
    estimated = forecast.estimated
    yield (
        f"estimated: {estimated.decode_tokens_per_s:.1f} decode tokens/s, TTFT "
        f"{estimated.ttft_s:.2f} s, TPOT {estimated.tpot_s:.3f} s, "
        f"{estimated.requests_in_flight:.0f} requests in flight"
    )
    simulated = forecast.simulated
    if simulated is None:
        yield f"not simulated: {not_simulated}"
        return
    offered = (
        "requests always waiting"
        if simulated.requests_per_s is None
        else f"{simulated.requests_per_s:.3g} requests/s"
    )
    seeds = ", ".join(str(seed) for seed in simulated.seeds)
    yield (
        f"simulated, a short run: {simulated.decode_tokens_per_s:.1f} decode and "
        f"{simulated.prompt_tokens_per_s:.1f} prompt tokens/s, {offered}, over "
        f"{simulated.window_s:.0f} s (seeds {seeds})"
    )
    if simulated.simulated_share < 1:
        yield (
            f"  of {simulated.simulated_share:.0%} of the nodes, the same share of every stage, "
            "and scaled up; `planner simulate` runs them all"
        )
    yield (
        f"  p50/p95/p99: TTFT {_shown(simulated.ttft)}, ITL {_shown(simulated.itl)}, "
        f"TPOT {_shown(simulated.tpot)}, end to end {_shown(simulated.e2e)}"
    )


def _shown(spread: Percentiles) -> str:
    return f"{spread.p50_s:.3g}/{spread.p95_s:.3g}/{spread.p99_s:.3g} s"
