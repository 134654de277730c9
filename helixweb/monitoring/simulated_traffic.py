"""Traffic that is no one's: the simulator serves requests, and pages show it, marked as simulated.

Every wall-clock second becomes a sample like those of a coordinator's reports, over the last ten.
"""

import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, cast

import numpy as np
from django.db import transaction
from django.utils import timezone

from helixweb.deployment.models import Deployment
from helixweb.deployment.services.desired import current_generation
from helixweb.inventory.models import Cluster
from helixweb.inventory.services.demonstration import DEMO_NAME, demo_cluster, demo_problem
from helixweb.monitoring.models import MetricSample
from helixweb.monitoring.moment import Moment
from helixweb.monitoring.node_samples import NodeSample
from helixweb.monitoring.services import announce
from helixweb.planning.incumbents import record_finished_run
from helixweb.planning.models import Plan, PlanRun
from helixweb.planning.options import options_to_json
from helixweb.planning.services.studies import WatchedEngine, rate_at
from helixweb.planning.stored import stored_plan, stored_problem
from planner import (
    RUNTIME_POLICY,
    Engine,
    EngineSetup,
    EngineStatistics,
    NeverCancelled,
    PlannerError,
    PlanOptions,
    RequestRecord,
    SimulationOptions,
    compute_plan,
    kv_room_token_layers,
    simulate,
    spread_of,
)
from planner.serialization import problem_to_dict
from planner.workload import Arrivals, Backlog, poisson, requests, scaled_lengths

PAGE_TOKENS = 16
SAMPLE_S = 1.0
SAMPLES_IN_A_REPORT = 10
_PEAK_WARM_UP_S, _PEAK_WINDOW_S = 120.0, 240.0
SEARCH_S = 10.0


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
    if Deployment.live(plan.cluster_id) is not None:
        raise TrafficRefused(
            f"cluster {plan.cluster} has a deployment; simulated traffic is for clusters that "
            "serve nothing, so stop it first"
        )
    latest = Moment(plan.cluster, now()).sample
    if latest is not None and not latest.simulated:
        raise TrafficRefused(f"the coordinator of cluster {plan.cluster} is reporting; stop it")
    problem, stored = stored_problem(plan), stored_plan(plan)
    simulated = partial(
        simulate,
        problem,
        placement=stored.placement,
        routing_weights=stored.routing_weights,
        policy=RUNTIME_POLICY,
        partial_inference=stored.partial_inference,
    )
    report = _Report(
        {
            name: int(kv_room_token_layers(problem, name, held) // PAGE_TOKENS)
            for name, held in stored.placement.layers.items()
        }
    )
    started_s, written = clock(), 0

    def tick(engine: WatchedEngine) -> None:
        nonlocal written
        columns = report.columns(engine)
        sleep(max(0.0, started_s + (written + 1) * SAMPLE_S - clock()))
        _record(plan, columns, at=now())
        written += 1

    def engine_of(setup: EngineSetup) -> Engine:
        tick_s = SAMPLE_S * options.speed
        return cast(Engine, WatchedEngine(Engine(setup), tick_s=tick_s, on_tick=tick))

    peak = simulated(
        demand=Backlog(lengths=scaled_lengths(problem.workload, seed=options.seed)),
        options=SimulationOptions(
            warm_up_s=_PEAK_WARM_UP_S, window_s=_PEAK_WINDOW_S, seed=options.seed
        ),
    )
    rate = rate_at(options.share, of=peak, problem=problem)
    times = poisson(rate_per_s=rate, seed=options.seed)
    arrivals = requests(report.noted(times), scaled_lengths(problem.workload, seed=options.seed))
    simulated(
        demand=Arrivals(requests=arrivals),
        options=SimulationOptions(
            # One tick more than is counted: the last one ends the run.
            warm_up_s=0.0,
            window_s=(options.duration_s + SAMPLE_S / 2) * options.speed,
            seed=options.seed,
        ),
        engine_maker=engine_of,
        on_request=report.hear,
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


class _Report:
    """Turns what the engine did in the last ticks into what a coordinator would report."""

    def __init__(self, pages: Mapping[str, int]) -> None:
        self._pages = pages
        self._ticks: deque[EngineStatistics] = deque(maxlen=SAMPLES_IN_A_REPORT)
        self._ttfts_s: deque[list[float]] = deque([[]], maxlen=SAMPLES_IN_A_REPORT)
        self._arrivals_s: list[float] = []
        self._preempted = 0

    def noted(self, arrivals_s: Iterator[float]) -> Iterator[float]:
        """The same ones; the simulator reads one ahead."""
        for arrival_s in arrivals_s:
            self._arrivals_s.append(arrival_s)
            yield arrival_s

    def hear(self, record: RequestRecord) -> None:
        """A request has finished."""
        self._ttfts_s[-1].append(record.first_token_s - record.arrival_s)

    def columns(self, engine: WatchedEngine) -> dict[str, Any]:
        """Columns of a sample; the engine and this object restart their counts from zero."""
        last = engine.statistics()
        engine.reset_statistics()
        self._ticks.append(last)
        self._preempted += last.preempted  # they wait to be let in again
        arrived = bisect_right(self._arrivals_s, engine.now)
        seconds = sum(tick.seconds for tick in self._ticks)
        itl = spread_of(np.sum([tick.gaps for tick in self._ticks], axis=0))
        ttfts_s = [ttft_s for tick in self._ttfts_s for ttft_s in tick]
        ttft_p50_s, ttft_p95_s = np.percentile(ttfts_s, (50, 95)) if ttfts_s else (None, None)
        self._ttfts_s.append([])
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
            "ttft_p50_s": ttft_p50_s,
            "ttft_p95_s": ttft_p95_s,
            "itl_p50_s": itl.p50_s if itl.count else None,
            "itl_p95_s": itl.p95_s if itl.count else None,
            "running": round(last.running_integral / last.seconds),
            "waiting": max(0, arrived - engine.admitted + self._preempted),
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


def demo_plan() -> Plan:
    """The newest plan of the demo cluster; makes cluster and plan where they are missing.

    Raises PlannerError.
    """
    known = Plan.unscoped.filter(cluster__name=DEMO_NAME).select_related("cluster").first()
    return known or _planned()


def _planned() -> Plan:
    problem = demo_problem()
    cluster = demo_cluster()
    options = PlanOptions(time_limit_s=SEARCH_S)
    found = compute_plan(problem, options=options, progress=lambda _: None, cancel=NeverCancelled())
    profile = cluster.profiles.select_related("model").first()
    if profile is None:
        raise Cluster.DoesNotExist(f"cluster {DEMO_NAME!r} has lost its profiles; delete it")
    run = record_finished_run(
        PlanRun(
            cluster=cluster,
            model=profile.model,
            problem=problem_to_dict(problem),
            options=options_to_json(options),
        ),
        found,
        now=timezone.now(),
    )
    return Plan.unscoped.select_related("cluster").get(run=run)
