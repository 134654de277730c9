"""Traffic that is no one's: the simulator serves requests, and pages show it, marked as simulated.

Every wall-clock second becomes a sample like those of a coordinator's reports, over the last ten.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, cast

import numpy as np
from django.db import transaction
from django.utils import timezone

from helixweb.deployment.services.desired import current_generation
from helixweb.monitoring.history import current_sample
from helixweb.monitoring.models import MetricSample
from helixweb.monitoring.moment import live_deployment
from helixweb.monitoring.node_samples import NodeSample
from helixweb.monitoring.services import announce
from helixweb.planning.models import Plan
from helixweb.planning.watched_engine import watched
from planner.capacity import kv_room_token_layers
from planner.domain.errors import PlannerError
from planner.domain.problem import Problem
from planner.domain.serving_policy import RUNTIME_POLICY
from planner.serialization import plan_from_dict, problem_from_dict
from planner.simulator.compiled.compiled_engine import new_engine
from planner.simulator.engine import (
    Engine,
    EngineSetup,
    EngineStatistics,
    Occurrence,
    OccurrenceKind,
)
from planner.simulator.forecast import Forecast, Spread, Tally, spread_of
from planner.simulator.simulate import SimulationOptions, simulate
from planner.workload.arrivals import poisson, rate_at_share_of_peak, requests
from planner.workload.demand import Arrivals, Backlog
from planner.workload.lengths import scaled_lengths
from planner.workload.request import Lengths, Request

PAGE_TOKENS = 16
SAMPLE_S = 1.0
SAMPLES_IN_A_REPORT = 10
_PEAK_WARM_UP_S, _PEAK_WINDOW_S = 120.0, 240.0

Simulate = Callable[..., Forecast]


class TrafficRefused(PlannerError):
    """The cluster has traffic of its own, or the options are out of range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficOptions:
    """Requests come at random at `share` of the peak, `speed` simulated seconds a second."""

    share: float = 0.75
    speed: float = 1.0
    duration_s: float = 600.0
    seed: int = 0

    def __post_init__(self) -> None:
        for key in ("share", "speed", "duration_s"):
            value = getattr(self, key)
            if not value > 0:
                raise TrafficRefused(f"{key} is {value}; it must be greater than 0")


def simulate_traffic(
    plan: Plan,
    *,
    options: TrafficOptions,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    now: Callable[[], datetime] = timezone.now,
) -> int:
    """Feed the monitor until the duration is over; returns how many samples were written.

    Raises TrafficRefused, and PlannerError for a plan that cannot serve its workload.
    """
    if live_deployment(plan.cluster) is not None:
        raise TrafficRefused(
            f"cluster {plan.cluster} has a deployment; simulated traffic is for clusters that "
            "serve nothing, so stop it first"
        )
    latest = current_sample(plan.cluster, now=now())
    if latest is not None and not latest.simulated:
        raise TrafficRefused(f"the coordinator of cluster {plan.cluster} is reporting; stop it")
    problem, stored = problem_from_dict(plan.problem), plan_from_dict(plan.document)
    simulated = partial(
        simulate,
        problem,
        placement=stored.placement,
        routing_weights=stored.routing_weights,
        policy=RUNTIME_POLICY,
        partial_inference=stored.partial_inference,
    )
    rate = _rate(problem, simulated, options)
    noted = _Watched()
    pages = {
        name: int(kv_room_token_layers(problem, name, held) // PAGE_TOKENS)
        for name, held in stored.placement.layers.items()
    }
    report = _Report(pages, noted)
    started_s, written = clock(), 0

    def tick(engine: Engine) -> None:
        nonlocal written
        columns = report.columns(engine)
        sleep(max(0.0, started_s + (written + 1) * SAMPLE_S - clock()))
        _record(plan, columns, at=now())
        written += 1

    def engine_of(setup: EngineSetup) -> Engine:
        engine = noted.engine_of(setup)
        return watched(engine, tick_s=SAMPLE_S * options.speed, on_tick=tick)

    arrivals = requests(
        poisson(rate_per_s=rate, seed=options.seed), _lengths(problem, options.seed)
    )
    simulated(
        demand=Arrivals(requests=noted.noted(arrivals)),
        options=SimulationOptions(
            # One tick more than is counted: the last one ends the run.
            warm_up_s=0.0,
            window_s=(options.duration_s + SAMPLE_S / 2) * options.speed,
            seed=options.seed,
        ),
        engine_maker=engine_of,
    )
    return written


@transaction.atomic
def _record(plan: Plan, columns: Mapping[str, Any], *, at: datetime) -> None:
    """A sample that is marked as simulated; nothing within the same second."""
    sample, is_new = MetricSample.unscoped.get_or_create(
        cluster_id=plan.cluster_id,
        second=int(at.timestamp()),
        defaults={
            "at": at,
            "generation": current_generation(plan.cluster_id),
            "entered_tokens_total": 0,
            "simulated_plan": plan,
            **columns,
        },
    )
    if is_new:
        announce(sample)


class _Watched:
    """The engine itself, but it is noted which requests have arrived, been let in, and had their
    first token, and when."""

    def __init__(self) -> None:
        self._offered: list[Request] = []
        self._arrival_s: dict[int, float] = {}
        self._first_tokens: deque[tuple[float, float]] = deque()

    def engine_of(self, setup: EngineSetup) -> Engine:
        self._engine = new_engine(setup)
        return cast(Engine, self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def noted(self, arrivals: Iterator[Request]) -> Iterator[Request]:
        """The same requests; the simulator reads one ahead."""
        for request in arrivals:
            self._offered.append(request)
            yield request

    def admit(self, **given: Any) -> int:
        number = self._engine.admit(**given)
        lengths = Lengths(
            prompt_tokens=given["prompt_tokens"], output_tokens=given["output_tokens"]
        )
        for position, request in enumerate(self._offered):
            if request.lengths == lengths:
                self._arrival_s[number] = request.arrival_s
                del self._offered[position]
                break
        return number

    def advance(self, until_s: float) -> Occurrence | None:
        occurrence = self._engine.advance(until_s)
        if occurrence is not None and occurrence.kind == OccurrenceKind.FIRST_TOKEN:
            seconds = occurrence.time_s - self._arrival_s[occurrence.request]
            self._first_tokens.append((occurrence.time_s, seconds))
        return occurrence

    def waiting_requests(self) -> int:
        """Those that have arrived and were not let in."""
        return sum(request.arrival_s <= self._engine.now for request in self._offered)

    def ttft(self, *, since_s: float) -> Spread:
        while self._first_tokens and self._first_tokens[0][0] < since_s:
            self._first_tokens.popleft()
        tally = Tally()
        for _, seconds in self._first_tokens:
            tally.add(seconds)
        return tally.spread()


class _Report:
    """Turns the engine's counters of the last ticks into what a coordinator would report."""

    def __init__(self, pages: Mapping[str, int], requests: _Watched) -> None:
        self._pages, self._requests = pages, requests
        self._ticks: deque[EngineStatistics] = deque(maxlen=SAMPLES_IN_A_REPORT)

    def columns(self, engine: Engine) -> dict[str, Any]:
        """Of a sample; it counts from zero again from here on."""
        last = engine.statistics()
        engine.reset_statistics()
        self._ticks.append(last)
        seconds = sum(tick.seconds for tick in self._ticks)
        itl = spread_of(np.sum([tick.gaps for tick in self._ticks], axis=0))
        ttft = self._requests.ttft(since_s=engine.now - seconds)
        prompt_tokens = sum(tick.prompt_tokens for tick in self._ticks)
        output_tokens = sum(tick.output_tokens for tick in self._ticks)
        whole = prompt_tokens + output_tokens
        nodes = {
            name: self._node(number, name, whole=whole).to_json()
            for number, name in enumerate(self._pages)
        }
        return {
            "output_tokens_per_s": output_tokens / seconds,
            "prompt_tokens_per_s": prompt_tokens / seconds,
            "ttft_p50_s": ttft.p50_s if ttft.count else None,
            "ttft_p95_s": ttft.p95_s if ttft.count else None,
            "itl_p50_s": itl.p50_s if itl.count else None,
            "itl_p95_s": itl.p95_s if itl.count else None,
            "running": round(last.running_integral / last.seconds),
            "waiting": self._requests.waiting_requests(),
            "nodes": nodes,
        }

    def _node(self, number: int, name: str, *, whole: int) -> NodeSample:
        last, pages = self._ticks[-1], self._pages[name]
        seconds = sum(tick.seconds for tick in self._ticks)
        busy_s = sum(float(tick.nodes.busy_s[number]) for tick in self._ticks)
        tokens = sum(
            int(tick.nodes.prompt_tokens[number] + tick.nodes.decodes[number])
            for tick in self._ticks
        )
        used = float(last.nodes.kv_integral[number]) / last.seconds / PAGE_TOKENS
        return NodeSample(
            kv_used_pages=min(pages, round(used)),
            kv_total_pages=pages,
            sequences=round(float(last.nodes.resident_integral[number]) / last.seconds),
            busy_ratio=min(1.0, busy_s / seconds),
            tokens_per_s=tokens / seconds,
            flow_share=min(1.0, tokens / whole) if whole else None,
        )


def _rate(problem: Problem, simulated: Simulate, options: TrafficOptions) -> float:
    """Requests/s at the share of what a backlog reaches."""
    peak = simulated(
        demand=Backlog(lengths=_lengths(problem, options.seed)),
        options=SimulationOptions(
            warm_up_s=_PEAK_WARM_UP_S, window_s=_PEAK_WINDOW_S, seed=options.seed
        ),
    )
    workload = problem.workload
    return rate_at_share_of_peak(
        peak.decode_tokens_per_s + peak.prompt_tokens_per_s,
        share=options.share,
        mean_tokens_per_request=workload.mean_prompt_tokens + workload.mean_output_tokens,
    )


def _lengths(problem: Problem, seed: int) -> Iterator[Lengths]:
    return scaled_lengths(
        seed,
        mean_prompt_tokens=problem.workload.mean_prompt_tokens,
        mean_output_tokens=problem.workload.mean_output_tokens,
    )
