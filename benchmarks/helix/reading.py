"""The two ways to read a comparison: as published, and on equal terms.

As published: the artifact's feeder, windows and hand-set concurrency, and online a load that was
chosen for each method. On equal terms: a backlog limited by KV room alone, the same KV room for
the same GPU and layers, a window of several request lifetimes, and online one load for all.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.helix.artifact_routers import ArtifactRouting
from benchmarks.helix.method import Method
from benchmarks.helix.offline_feeder import OfflineFeeder
from planner.simulator.feeders import Feeder, feeder_for
from planner.simulator.forecast import Forecast
from planner.simulator.simulate import SimulationOptions, simulate
from planner.workload.arrivals import like_counts, requests
from planner.workload.demand import Arrivals, Backlog, Demand
from planner.workload.lengths import MEAN_OUTPUT_TOKENS, MEAN_PROMPT_TOKENS, published_lengths


@dataclass(frozen=True, slots=True, kw_only=True)
class Online:
    """Figures of an online run; prompt latency is TTFT, decode latency the gap between tokens."""

    decode_tokens_per_s: float
    prompt_p50_s: float
    prompt_p95_s: float
    decode_p50_s: float
    decode_p95_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """Runs methods by the parameters of figures.json; `counts` are the trace's arrivals."""

    parameters: Mapping[str, Any]
    counts: Sequence[int]

    def offline_as_published(self, method: Method, *, seed: int) -> float:
        """Decode tokens/s in the artifact's window, ramp and all."""
        demand, feeder = Backlog(lengths=published_lengths(seed)), OfflineFeeder
        if method.requests is not None:
            demand, feeder = closed_loop(method.requests, seed=seed), feeder_for
            method = replace(method, policy=replace(method.policy, kv_high_water=1.0))
        span = self.parameters["offline"]
        return self._run(
            method,
            demand,
            feeder=feeder,
            warm_up_s=span["warm_up_s"],
            window_s=span["window_s"],
            seed=seed,
        ).decode_tokens_per_s

    def online_as_published(
        self, method: Method, *, offered_tokens_per_s: float, seed: int
    ) -> Online:
        """The first half hour of the trace, whose mean is so many tokens/s, prompts included."""
        span = self.parameters["online"]
        policy = replace(method.policy, kv_high_water=span["kv_high_water"])
        forecast = self._run(
            replace(method, policy=policy),
            self._arrivals(offered_tokens_per_s, seed=seed),
            warm_up_s=span["warm_up_s"],
            window_s=span["window_s"],
            seed=seed,
        )
        return online_of(forecast)

    def offline_on_equal_terms(
        self, method: Method, *, seed: int, requests_in_flight: int | None = None
    ) -> Forecast:
        """A backlog over several lifetimes, at an equal concurrency or limited by KV room."""
        span = self.parameters["equal"]

        def run(warm_up_s: float, window_s: float) -> Forecast:
            demand = (
                Backlog(lengths=published_lengths(seed))
                if requests_in_flight is None
                else closed_loop(requests_in_flight, seed=seed)
            )
            return self._run(method, demand, warm_up_s=warm_up_s, window_s=window_s, seed=seed)

        lifetime_s = lifetime_of(run(span["pilot_warm_up_s"], span["pilot_window_s"]))
        return run(span["warm_up_lifetimes"] * lifetime_s, span["window_lifetimes"] * lifetime_s)

    def online_on_equal_terms(
        self, method: Method, *, offered_tokens_per_s: float, lifetime_s: float, seed: int
    ) -> Online:
        """At a load that is the same for all methods, over several lifetimes of the slowest."""
        span = self.parameters["equal"]
        forecast = self._run(
            method,
            self._arrivals(offered_tokens_per_s, seed=seed),
            warm_up_s=span["warm_up_lifetimes"] * lifetime_s,
            window_s=span["window_lifetimes"] * lifetime_s,
            seed=seed,
        )
        return online_of(forecast)

    def _arrivals(self, offered_tokens_per_s: float, *, seed: int) -> Arrivals:
        rate_per_s = offered_tokens_per_s / (MEAN_PROMPT_TOKENS + MEAN_OUTPUT_TOKENS)
        times = like_counts(self.counts, rate_per_s=rate_per_s, seed=seed)
        return Arrivals(requests=requests(times, published_lengths(seed)))

    def _run(
        self,
        method: Method,
        demand: Demand,
        *,
        feeder: Callable[..., Feeder] = feeder_for,
        warm_up_s: float,
        window_s: float,
        seed: int,
    ) -> Forecast:
        makers: dict[str, Any] = {"feeder_maker": feeder}
        if method.artifact_router is not None:
            routing = ArtifactRouting(method.artifact_router, seed=seed)
            makers |= {"engine_maker": routing.engine, "router_maker": routing.router}
        return simulate(
            method.problem,
            placement=method.placement,
            routing_weights=method.weights,
            router=method.router,
            demand=demand,
            policy=method.policy,
            partial_inference=method.partial_inference,
            options=SimulationOptions(
                warm_up_s=warm_up_s,
                window_s=window_s,
                page_tokens=1,
                fixed_output_tokens=self.parameters["fixed_output_tokens"],
                seed=seed,
            ),
            **makers,
        )


def closed_loop(count: int, *, seed: int) -> Backlog:
    """So many requests at a time, a new one for each that ends."""
    return Backlog(
        lengths=published_lengths(seed), prompts_in_flight=count, requests_in_flight=count
    )


def lifetime_of(forecast: Forecast) -> float:
    """Mean seconds that a request is in flight, from first tokens by Little's law."""
    return forecast.requests_running * MEAN_OUTPUT_TOKENS / forecast.decode_tokens_per_s


def online_of(forecast: Forecast) -> Online:
    return Online(
        decode_tokens_per_s=forecast.decode_tokens_per_s,
        prompt_p50_s=forecast.ttft.p50_s,
        prompt_p95_s=forecast.ttft.p95_s,
        decode_p50_s=forecast.itl.p50_s,
        decode_p95_s=forecast.itl.p95_s,
    )
