"""One placement held against a goal: its balanced flow, its estimate, and its simulations."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from planner.balanced_flow import balanced_flow
from planner.capacity import coverage_tokens_per_s
from planner.domain.flow import Flow
from planner.domain.placement import Placement
from planner.domain.plan_forecast import (
    EstimatedFigures,
    PlanForecast,
    SimulatedFigures,
)
from planner.domain.problem import Problem
from planner.estimate.estimate import Estimate, Estimator
from planner.max_flow import mean_hops, routing_weights
from planner.objectives.goal import goal_for
from planner.objectives.samples import Miss, Sample, Shape, mean_of_seeds, summed
from planner.objectives.thinning import thinned
from planner.placers.board import Score
from planner.plan_options import PlanOptions
from planner.simulator.simulate import InvalidSimulation, SimulationOptions, simulate
from planner.timing import timing_source
from planner.tuning.served import TrialTuning as tuned
from planner.workload.arrivals import poisson, requests
from planner.workload.demand import Arrivals, Backlog, Demand, prompts_in_flight
from planner.workload.lengths import scaled_lengths
from planner.workload.request import InvalidWorkload


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
class Span:
    """Length of a simulation, in estimated lifetimes of a request."""

    warm_up: float
    window: float

    @property
    def lifetimes(self) -> float:
        return self.warm_up + self.window

    def for_requests_in_flight(self, held: float) -> "Span":
        """A span that covers some hundreds of requests, even if few fit at once."""
        return Span(
            warm_up=max(self.warm_up, tuned.LEAST_WARM_UP_REQUESTS / held),
            window=max(self.window, tuned.LEAST_REQUESTS / held),
        )

    def scaled(self, share: float) -> "Span":
        return Span(warm_up=share * self.warm_up, window=share * self.window)


class Trials:
    """Compares placements of one problem by the objective and the policy of the options.

    The options' rules are already applied to the problem.
    """

    def __init__(self, problem: Problem, options: PlanOptions) -> None:
        """Raises InvalidOptions."""
        self.problem = problem
        self.goal = goal_for(problem, options)
        self._options = options
        self._sample_of: dict[Shape, Sample] = {}
        self._rate_of: dict[Shape, float] = {}
        self._figures_of: dict[tuple[Shape, Span, tuple[int, ...]], SimulatedFigures | None] = {}
        self.nearest_miss: Miss | None = None
        self._unlimited = Estimator(problem, policy=options.policy)
        self.estimator = self._unlimited
        if self.goal.has_limits:
            self.estimator = Estimator(
                problem,
                policy=options.policy,
                ttft_limit_s=self.goal.ttft_limit_s,
                tpot_limit_s=self.goal.tpot_limit_s,
            )

    def score(self, placement: Placement) -> Score:
        """Score by the estimate. Raises InvalidPlacement."""
        return self.estimated(placement, placer="").score

    def estimated(self, placement: Placement, *, placer: str) -> Trial:
        """Raises InvalidPlacement."""
        flow = balanced_flow(
            self.problem,
            placement,
            partial_inference=self._options.partial_inference,
            max_hops=self._options.rules.max_hops,
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
        self,
        trial: Trial,
        *,
        seeds: Sequence[int],
        span: Span,
        is_in_time: Callable[[float], bool] = lambda _: True,
    ) -> SimulatedFigures | None:
        """Simulate; None if the estimate serves nothing, no request fits, or it is late.

        Components of large plans run apart unless bandwidth is shared, each for its own lifetimes,
        as long as `is_in_time` allows the seconds that they take together; those that are late
        count by their estimates, where these are the lesser part. Of large components a share of
        every stage is simulated, and taken times the ratio of the estimates.

        Requests always wait; for "latency" they arrive at random, at the highest rate found at
        which the request at the goal's percentile keeps to the limits; None where none does, and
        `nearest_miss` is how near one came.
        """
        if trial.estimate.decode_tokens_per_s <= 0:
            return None
        samples = self._samples(trial)
        needed_s, late_tokens_per_s, begun = 0.0, 0.0, []
        for sample in sorted(samples, key=lambda one: self._left_s(one, span, tuple(seeds))):
            needed_s += self._left_s(sample, span, tuple(seeds))
            if is_in_time(needed_s):
                begun.append(sample)
            else:
                late_tokens_per_s += sample.tokens_per_s
        whole = sum(sample.tokens_per_s for sample in samples)
        if late_tokens_per_s > (1 - tuned.LEAST_SIMULATED_SHARE) * whole:
            return None
        found = [
            (sample, figures)
            for sample in begun
            if (figures := self._sampled(sample, seeds=tuple(seeds), span=span)) is not None
        ]
        if not found:
            return None
        nodes = len(trial.placement.layers)
        return summed(found, late_tokens_per_s=late_tokens_per_s, nodes=nodes)

    def simulated_tokens_per_s(self, part: Placement) -> float | None:
        """Tokens/s of a component of a large plan in its last simulation."""
        return self._rate_of.get(self.shape(part))

    def _sampled(
        self, sample: Sample, *, seeds: tuple[int, ...], span: Span
    ) -> SimulatedFigures | None:
        if sample.shape is None:
            return self._simulated(sample, seeds=seeds, span=span)
        key = sample.shape, span, seeds
        if key not in self._figures_of:
            found = self._simulated(sample, seeds=seeds, span=span)
            self._figures_of[key] = found
            self._rate_of[sample.shape] = sample.scale * found.decode_tokens_per_s if found else 0.0
        return self._figures_of[key]

    def _simulated(
        self, sample: Sample, *, seeds: Sequence[int], span: Span
    ) -> SimulatedFigures | None:
        trial = sample.trial
        lifetime_s = self._lifetime_s(trial)
        enough = span.for_requests_in_flight(trial.estimate.held)
        options = SimulationOptions(
            warm_up_s=enough.warm_up * lifetime_s, window_s=enough.window * lifetime_s
        )
        try:
            if self.goal.has_limits:
                return self._within_limits(trial, options, seeds=seeds)
            return self._runs(trial, options, seeds=seeds, prompts=sample.prompts)
        except (InvalidSimulation, InvalidWorkload):
            return None  # requests that never fit, or all served at once: nothing to measure

    def _within_limits(
        self, trial: Trial, options: SimulationOptions, *, seeds: Sequence[int]
    ) -> SimulatedFigures | None:
        """Figures at the highest rate of a few tries: downwards, then between the nearest two."""
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
        requests_per_s: float | None = None,
        prompts: int | None = None,
    ) -> SimulatedFigures:
        runs = []
        for seed in seeds:
            lengths = scaled_lengths(self.problem.workload, seed=seed)
            demand: Demand = Backlog(lengths=lengths, prompts_in_flight=prompts)
            if requests_per_s is not None:
                arrivals = poisson(rate_per_s=requests_per_s, seed=seed)
                demand = Arrivals(requests=requests(arrivals, lengths))
            runs.append(
                simulate(
                    self.problem,
                    placement=trial.placement,
                    routing_weights=routing_weights(trial.flow),
                    demand=demand,
                    policy=self._options.policy,
                    partial_inference=self._options.partial_inference,
                    options=options,
                )
            )
        return mean_of_seeds(runs, seeds=seeds, requests_per_s=requests_per_s)

    def simulation_s(self, trial: Trial, span: Span, *, seeds: Sequence[int] = (0,)) -> float:
        """About how long the simulator will need; by its speed on the published clusters."""
        return sum(self._left_s(sample, span, tuple(seeds)) for sample in self._samples(trial))

    def _left_s(self, sample: Sample, span: Span, seeds: tuple[int, ...]) -> float:
        if (sample.shape, span, seeds) in self._figures_of:
            return 0.0
        trial = sample.trial
        lifetimes = span.for_requests_in_flight(trial.estimate.held).lifetimes
        tokens = trial.estimate.decode_tokens_per_s * lifetimes * self._lifetime_s(trial)
        requests = tokens / self.problem.workload.mean_output_tokens
        used = sum(edge.flow_tokens_per_s > 0 for edge in trial.flow.edges)
        routing_s = requests * used / tuned.ROUTED_CONNECTIONS_PER_S
        return len(seeds) * (tokens * mean_hops(trial.flow) / tuned.TOKEN_HOPS_PER_S + routing_s)

    def _samples(self, trial: Trial) -> list[Sample]:
        """The trial, or of a large plan a share of every stage of a component of each shape."""
        nodes = len(trial.placement.layers)
        if nodes <= tuned.MOST_SIMULATED_NODES:
            return [Sample(trial=trial, scale=1.0, nodes=nodes, shape=None)]
        parts = trial.placement.parts
        if self.goal.has_limits or self.problem.cluster.shared:
            parts = (trial.placement,)
        counts: dict[Shape, int] = {}
        for part in parts:
            shape = self.shape(part)
            counts[shape] = counts.get(shape, 0) + 1
            if shape not in self._sample_of:
                whole = trial if len(parts) == 1 else self.estimated(part, placer=trial.placer)
                fewer = thinned(self.problem, part, most_nodes=tuned.MOST_SIMULATED_NODES)
                share = whole if fewer == part else self.estimated(fewer, placer=trial.placer)
                if share.value <= 0:
                    share = whole
                scale = whole.estimate.decode_tokens_per_s / (
                    share.estimate.decode_tokens_per_s or 1.0
                )
                self._sample_of[shape] = Sample(
                    trial=share,
                    scale=scale,
                    nodes=len(part.layers),
                    shape=shape,
                    prompts=max(1, round(prompts_in_flight(nodes) / scale)),
                )
        return [
            replace(self._sample_of[shape], count=count)
            for shape, count in counts.items()
            if self._sample_of[shape].trial.value > 0
        ]

    def shape(self, part: Placement) -> Shape:
        """Equal for components of like nodes."""
        figures, cluster = self._unlimited.figures, self.problem.cluster
        return tuple(
            sorted(
                (cluster.node(name).compute_profile, figures.likeness[name], held.first, held.end)
                for name, held in part.layers.items()
            )
        )

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
            policy=self._options.policy,
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
        """Estimated lifetime of a request in the slowest component, which fills last."""
        outputs = self.problem.workload.mean_output_tokens
        return max(
            component.ttft_s + component.round_trip_s * outputs
            for component in trial.estimate.components
            if component.decode_tokens_per_s > 0
        )
