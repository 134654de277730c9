"""Samples of a plan to simulate, and the figures of the whole from those of its samples."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, TypeAlias

from planner.domain.plan_forecast import Percentiles, SimulatedFigures
from planner.simulator.forecast import Forecast, Spread

if TYPE_CHECKING:
    from planner.objectives.trial import Trial

Shape: TypeAlias = tuple[tuple[str, str, int, int], ...]
"""Of a component: profile, place and layers of every node; like nodes are equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A simulated part of a plan: `trial`, for `count` components that serve `scale` as much."""

    trial: "Trial"
    scale: float
    nodes: int
    shape: Shape | None
    count: int = 1
    prompts: int | None = None  # under way at a time, where the whole plan's number is another

    @property
    def tokens_per_s(self) -> float:
        """Estimated tokens/s of all its components."""
        return self.count * self.scale * self.trial.estimate.decode_tokens_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """How far a plan missed its latency limits."""

    placer: str
    requests_per_s: float
    ttft_s: float
    tpot_s: float
    excess: float


def mean_of_seeds(
    runs: Sequence[Forecast], *, seeds: Sequence[int], requests_per_s: float | None
) -> SimulatedFigures:
    return SimulatedFigures(
        seeds=tuple(seeds),
        requests_per_s=requests_per_s,
        window_s=runs[0].window_s,
        decode_tokens_per_s=fmean(run.decode_tokens_per_s for run in runs),
        prompt_tokens_per_s=fmean(run.prompt_tokens_per_s for run in runs),
        ttft=_percentiles([run.ttft for run in runs]),
        itl=_percentiles([run.itl for run in runs]),
        tpot=_percentiles([run.tpot for run in runs]),
        e2e=_percentiles([run.e2e for run in runs]),
        requests_in_flight=fmean(run.requests_running for run in runs),
        utilisation_mean=fmean(run.utilisation_mean for run in runs),
    )


def summed(
    found: Sequence[tuple[Sample, SimulatedFigures]], *, late_tokens_per_s: float, nodes: int
) -> SimulatedFigures:
    """Rates and requests in flight are added up; percentiles are means by rate.

    What is late serves as much as it is estimated to. `nodes` are the plan's.
    """
    runs = [figures for _, figures in found]
    scales = [sample.count * sample.scale for sample, _ in found]
    known = sum(scale * run.decode_tokens_per_s for scale, run in zip(scales, runs, strict=True))
    if known > 0:
        scales = [scale * (1 + late_tokens_per_s / known) for scale in scales]
    if len(runs) == 1 and scales == [1.0]:
        return runs[0]
    rates = [scale * run.decode_tokens_per_s for scale, run in zip(scales, runs, strict=True)]
    prompts = [scale * run.prompt_tokens_per_s for scale, run in zip(scales, runs, strict=True)]
    held = [scale * run.requests_in_flight for scale, run in zip(scales, runs, strict=True)]
    used = [float(sample.count * sample.nodes) for sample, _ in found]
    offered = runs[0].requests_per_s
    return SimulatedFigures(
        seeds=runs[0].seeds,
        requests_per_s=None if offered is None else scales[0] * offered,
        window_s=max(run.window_s for run in runs),
        decode_tokens_per_s=sum(rates),
        prompt_tokens_per_s=sum(prompts),
        ttft=_percentiles([run.ttft for run in runs], rates),
        itl=_percentiles([run.itl for run in runs], rates),
        tpot=_percentiles([run.tpot for run in runs], rates),
        e2e=_percentiles([run.e2e for run in runs], rates),
        requests_in_flight=sum(held),
        utilisation_mean=fmean([run.utilisation_mean for run in runs], used),
        simulated_share=sum(len(sample.trial.placement.layers) for sample, _ in found) / nodes,
    )


def _percentiles(
    spreads: Sequence[Spread] | Sequence[Percentiles], weights: Sequence[float] | None = None
) -> Percentiles:
    if weights is not None and not sum(weights) > 0:
        weights = None
    return Percentiles(
        p50_s=fmean([spread.p50_s for spread in spreads], weights),
        p95_s=fmean([spread.p95_s for spread in spreads], weights),
        p99_s=fmean([spread.p99_s for spread in spreads], weights),
    )
