"""The expected performance of a plan, and the assumptions behind it."""

from dataclasses import dataclass
from typing import Annotated, Literal

from planner.domain.limits import POSITIVE
from planner.domain.serving_policy import ServingPolicy

Objective = Literal["decode", "flow", "latency", "cost", "fewest_nodes"]
# Values of "fewest_nodes" are the served share of a demand; where it is met, this and the number of
# idle nodes.
DEMAND_MET = 2.0
# Percentile of requests that must meet latency limits: the median, or all but the slowest 5 %.
LimitPercentile = Literal["p50", "p95"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """Percentiles of durations, in seconds."""

    p50_s: float
    p95_s: float
    p99_s: float

    def at(self, percentile: LimitPercentile) -> float:
        return self.p50_s if percentile == "p50" else self.p95_s


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimatedFigures:
    """Figures by `planner.estimate` while requests always wait: means, without wait for KV room."""

    decode_tokens_per_s: float
    ttft_s: float
    tpot_s: float
    requests_in_flight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedFigures:
    """Figures by `planner.simulator`, means over `seeds`.

    `requests_per_s` is the offered rate; None where requests always wait, and TTFT and end-to-end
    times then begin when a request is let in. Runs are short: minutes of a plan's life. Of large
    plans only `simulated_share` of the nodes is simulated, and the rates are scaled up.
    """

    seeds: tuple[int, ...]
    requests_per_s: float | None
    window_s: float
    decode_tokens_per_s: float
    prompt_tokens_per_s: float
    ttft: Percentiles
    itl: Percentiles
    tpot: Percentiles
    e2e: Percentiles
    requests_in_flight: float
    utilisation_mean: float
    simulated_share: Annotated[float, POSITIVE] = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanForecast:
    """`value` is what the objective made large: tokens/s, million tokens per unit of price, or as
    DEMAND_MET says.

    `timing` is "measured" or "derived" (`planner.timing`). Lengths are those of the workload,
    spread like published conversations. `simulated` is None where the time limit left no time, or
    no request of such lengths fits. `upper_bound` is what no placement's value exceeds for long, as
    `planner.bounds.served` proves it; None where no bound is known.
    """

    objective: Objective
    value: float
    timing: Literal["measured", "derived"]
    policy: ServingPolicy
    mean_prompt_tokens: Annotated[float, POSITIVE]
    mean_output_tokens: Annotated[float, POSITIVE]
    estimated: EstimatedFigures
    simulated: SimulatedFigures | None
    upper_bound: float | None = None
