"""One placement held against a goal: its balanced flow, its estimate, and its simulations."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TypeAlias

from planner.balanced_flow import balanced_flow
from planner.capacity import coverage_tokens_per_s
from planner.domain.flow import Flow
from planner.domain.placement import LayerRange, Placement
from planner.domain.plan_forecast import (
    EstimatedFigures,
    Percentiles,
    PlanForecast,
    SimulatedFigures,
)
from planner.domain.problem import Problem
from planner.domain.serving_policy import ServingPolicy
from planner.estimate.estimate import Estimate, Estimator
from planner.max_flow import mean_hops, routing_weights
from planner.objectives.goal import Goal
from planner.objectives.thinning import thinned
from planner.placers.board import Score
from planner.simulator.forecast import Forecast, Spread
from planner.simulator.simulate import InvalidSimulation, SimulationOptions, simulate
from planner.timing import timing_source
from planner.tuning.served import TrialTuning as tuned
from planner.workload.arrivals import poisson, requests
from planner.workload.demand import Arrivals, Backlog, Demand
from planner.workload.lengths import scaled_lengths
from planner.workload.request import InvalidWorkload

_Key: TypeAlias = tuple[frozenset[tuple[str, LayerRange]], tuple[frozenset[str], ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """`value` is the goal's, by the estimate.

    `keeps_limits`: whether latency limits are kept by estimate; if not, the estimate is without.
    """

    placement: Placement
    placer: str
    flow: Flow
    estimate: Estimate
    value: float
    keeps_limits: bool = True

    @property
    def score(self) -> Score:
        return Score(
            flow_tokens_per_s=self.flow.value_tokens_per_s,
            merit=(self.value,),
            objective_value=self.value if self.keeps_limits else 0.0,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """How near a plan came to latency limits that it did not keep."""

    placer: str
    requests_per_s: float
    ttft_s: float
    tpot_s: float
    excess: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """How long to simulate, in estimated lifetimes of a request."""

    warm_up: float
    window: float

    @property
    def lifetimes(self) -> float:
        return self.warm_up + self.window

    def for_requests_in_flight(self, held: float) -> "Span":
        """At least so long that some hundreds of requests are seen, however few fit at once."""
        return Span(
            warm_up=max(self.warm_up, tuned.LEAST_WARM_UP_REQUESTS / held),
            window=max(self.window, tuned.LEAST_REQUESTS / held),
        )

    def scaled(self, share: float) -> "Span":
        return Span(warm_up=share * self.warm_up, window=share * self.window)


class Trials:
    """Holds placements of one problem against one goal under one policy."""

    def __init__(
        self,
        problem: Problem,
        *,
        goal: Goal,
        policy: ServingPolicy,
        partial_inference: bool,
        max_hops: int | None,
    ) -> None:
        self.problem = problem
        self.goal = goal
        self.policy = policy
        self.partial_inference = partial_inference
        self._max_hops = max_hops
        self._share_of: dict[_Key, Trial] = {}
        self.nearest_miss: Miss | None = None
        self._unlimited = Estimator(problem, policy=policy)
        self.estimator = self._unlimited
        if goal.has_limits:
            self.estimator = Estimator(
                problem,
                policy=policy,
                ttft_limit_s=goal.ttft_limit_s,
                tpot_limit_s=goal.tpot_limit_s,
            )

    def score(self, placement: Placement) -> Score:
        """By the estimate. Raises InvalidPlacement."""
        return self.estimated(placement, placer="").score

    def estimated(self, placement: Placement, *, placer: str) -> Trial:
        """Raises InvalidPlacement."""
        flow = balanced_flow(
            self.problem,
            placement,
            partial_inference=self.partial_inference,
            max_hops=self._max_hops,
        )
        estimate = self.estimator.of(placement, flow)
        rate = estimate.decode_tokens_per_s
        keeps_limits = rate > 0
        if not keeps_limits and self.goal.has_limits:
            estimate = self._unlimited.of(placement, flow)
            rate = tuned.UNLIKELY * estimate.decode_tokens_per_s
        # Nodes of a component that lacks a layer would wait for it; nothing deploys them so.
        is_whole = all(
            min(coverage_tokens_per_s(self.problem, part)) > 0 for part in placement.parts
        )
        return Trial(
            placement=placement,
            placer=placer,
            flow=flow,
            estimate=estimate,
            value=self.value(placement, rate) if is_whole else 0.0,
            keeps_limits=keeps_limits,
        )

    def value(self, placement: Placement, decode_tokens_per_s: float) -> float:
        return self.goal.value(
            decode_tokens_per_s,
            used=tuple(placement.layers),
            nodes=len(self.problem.cluster.nodes),
        )

    def simulated(
        self, trial: Trial, *, seeds: Sequence[int], span: Span
    ) -> SimulatedFigures | None:
        """None where the estimate serves nothing, or no request of the workload fits.

        Of large plans a share of every stage is simulated; what it serves is taken times the ratio
        of the whole plan's estimate to the share's. Requests always wait; for "latency" they arrive
        at random, at the highest rate found at which the request at the goal's percentile keeps to
        the limits; None where that is at none, `nearest_miss` then tells how near one came.
        """
        whole_rate = trial.estimate.decode_tokens_per_s
        if whole_rate <= 0:
            return None
        nodes = len(trial.placement.layers)
        trial = self._to_simulate(trial)
        rate = trial.estimate.decode_tokens_per_s
        lifetime_s = self._lifetime_s(trial)
        enough = span.for_requests_in_flight(trial.estimate.held)
        options = SimulationOptions(
            warm_up_s=enough.warm_up * lifetime_s, window_s=enough.window * lifetime_s
        )
        try:
            if self.goal.has_limits:
                found = self._within_limits(trial, options, seeds=seeds)
            else:
                found = self._runs(trial, options, seeds=seeds, requests_per_s=None)
        except (InvalidSimulation, InvalidWorkload):
            return None  # requests that never fit, or all served at once: nothing to measure
        if found is None:
            return None
        return _scaled(
            found, whole_rate / rate, simulated_share=len(trial.placement.layers) / nodes
        )

    def _within_limits(
        self, trial: Trial, options: SimulationOptions, *, seeds: Sequence[int]
    ) -> SimulatedFigures | None:
        """At the highest rate of a few tries; downwards first, then between the nearest two."""
        best: SimulatedFigures | None = None
        full = trial.estimate.decode_tokens_per_s / self.problem.workload.mean_output_tokens
        offered = full
        if not trial.keeps_limits:
            offered *= tuned.NEARLY_IDLE
        kept, missed = 0.0, math.inf
        for _ in range(tuned.LATENCY_TRIES):
            longer = min(full / offered, tuned.MOST_LONGER)  # so that as many requests are seen
            found = self._runs(
                trial,
                replace(options, window_s=longer * options.window_s),
                seeds=seeds,
                requests_per_s=offered,
            )
            if self._keeps_limits(trial, found):
                best, kept = found, offered
            else:
                missed = offered
            if (kept > 0 and missed <= tuned.LATENCY_PRECISION * kept) or missed == math.inf:
                break
            offered = (kept + missed) / 2 if kept > 0 else tuned.LATENCY_STEP_DOWN * offered
        return best

    def _keeps_limits(self, trial: Trial, found: SimulatedFigures) -> bool:
        percentile = self.goal.limit_percentile
        ttft_s, tpot_s = found.ttft.at(percentile), found.tpot.at(percentile)
        excess = max(ttft_s / self.goal.ttft_limit_s, tpot_s / self.goal.tpot_limit_s)
        if excess <= 1:
            return True
        if self.nearest_miss is None or excess < self.nearest_miss.excess:
            self.nearest_miss = Miss(
                placer=trial.placer,
                requests_per_s=found.requests_per_s or 0.0,
                ttft_s=ttft_s,
                tpot_s=tpot_s,
                excess=excess,
            )
        return False

    def _runs(
        self,
        trial: Trial,
        options: SimulationOptions,
        *,
        seeds: Sequence[int],
        requests_per_s: float | None,
    ) -> SimulatedFigures:
        weights = routing_weights(trial.flow)
        return _mean(
            [
                self._run(trial, weights, options, seed=seed, requests_per_s=requests_per_s)
                for seed in seeds
            ],
            seeds=seeds,
            requests_per_s=requests_per_s,
        )

    def simulation_s(self, trial: Trial, span: Span) -> float:
        """About how long the simulator will need; by its speed on the published clusters."""
        trial = self._to_simulate(trial)
        lifetimes = span.for_requests_in_flight(trial.estimate.held).lifetimes
        tokens = trial.estimate.decode_tokens_per_s * lifetimes * self._lifetime_s(trial)
        requests = tokens / self.problem.workload.mean_output_tokens
        routed = requests * len(trial.placement.layers)
        return (
            tokens * mean_hops(trial.flow) / tuned.TOKEN_HOPS_PER_S
            + routed / tuned.ROUTED_NODES_PER_S
        )

    def _to_simulate(self, trial: Trial) -> Trial:
        """The trial, or of a large plan that of a share of every stage."""
        if len(trial.placement.layers) <= tuned.MOST_SIMULATED_NODES:
            return trial
        key = frozenset(trial.placement.layers.items()), trial.placement.components
        if key not in self._share_of:
            placement = thinned(
                self.problem, trial.placement, most_nodes=tuned.MOST_SIMULATED_NODES
            )
            share = self.estimated(placement, placer=trial.placer)
            self._share_of[key] = share if share.value > 0 else trial
        return self._share_of[key]

    def forecast(self, trial: Trial, simulated: SimulatedFigures | None) -> PlanForecast:
        rate = (
            trial.estimate.decode_tokens_per_s
            if simulated is None
            else simulated.decode_tokens_per_s
        )
        workload = self.problem.workload
        return PlanForecast(
            objective=self.goal.objective,
            value=self.value(trial.placement, rate),
            timing=timing_source(self.problem),
            policy=self.policy,
            mean_prompt_tokens=workload.mean_prompt_tokens,
            mean_output_tokens=workload.mean_output_tokens,
            estimated=EstimatedFigures(
                decode_tokens_per_s=trial.estimate.decode_tokens_per_s,
                ttft_s=trial.estimate.ttft_s,
                tpot_s=trial.estimate.tpot_s,
                requests_in_flight=trial.estimate.held,
            ),
            simulated=simulated,
        )

    def _lifetime_s(self, trial: Trial) -> float:
        """Of a request in the slowest component, which fills last."""
        outputs = self.problem.workload.mean_output_tokens
        return max(
            component.ttft_s + component.round_trip_s * outputs
            for component in trial.estimate.components
            if component.decode_tokens_per_s > 0
        )

    def _run(
        self,
        trial: Trial,
        weights: Mapping[str, Mapping[str, float]],
        options: SimulationOptions,
        *,
        seed: int,
        requests_per_s: float | None = None,
    ) -> Forecast:
        workload = self.problem.workload
        lengths = scaled_lengths(
            seed,
            mean_prompt_tokens=workload.mean_prompt_tokens,
            mean_output_tokens=workload.mean_output_tokens,
        )
        demand: Demand = Backlog(lengths=lengths)
        if requests_per_s is not None:
            arrivals = poisson(rate_per_s=requests_per_s, seed=seed)
            demand = Arrivals(requests=requests(arrivals, lengths))
        return simulate(
            self.problem,
            placement=trial.placement,
            routing_weights=weights,
            demand=demand,
            policy=self.policy,
            partial_inference=self.partial_inference,
            options=options,
        )


def _mean(
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


def _scaled(figures: SimulatedFigures, ratio: float, *, simulated_share: float) -> SimulatedFigures:
    return replace(
        figures,
        simulated_share=simulated_share,
        requests_per_s=None if figures.requests_per_s is None else ratio * figures.requests_per_s,
        decode_tokens_per_s=ratio * figures.decode_tokens_per_s,
        prompt_tokens_per_s=ratio * figures.prompt_tokens_per_s,
        requests_in_flight=ratio * figures.requests_in_flight,
    )


def _percentiles(spreads: Sequence[Spread]) -> Percentiles:
    return Percentiles(
        p50_s=fmean(spread.p50_s for spread in spreads),
        p95_s=fmean(spread.p95_s for spread in spreads),
        p99_s=fmean(spread.p99_s for spread in spreads),
    )
