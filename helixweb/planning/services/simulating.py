"""Simulates what a plan delivers under a workload, a policy and a seed."""

import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any, cast

from django.db import transaction
from pydantic import TypeAdapter

import planner
from helixweb.common import events, jobs
from helixweb.common.jobs import Lease
from helixweb.planning.models import Plan, Simulation
from helixweb.planning.options import SimulationRequest
from planner.serialization import plan_from_dict, problem_from_dict
from planner.workload import (
    Arrivals,
    Backlog,
    Demand,
    bursts,
    poisson,
    rate_at_share_of_peak,
    requests,
    scaled_lengths,
)

WARM_UP_S, WINDOW_S = 300.0, 600.0
POLICIES: dict[str, planner.ServingPolicy] = {
    "runtime": planner.RUNTIME_POLICY,
    "published": planner.PUBLISHED_POLICY,
}
_LOOKS = 200
_PROGRESS_INTERVAL_S = 0.5
_FORECAST = TypeAdapter(planner.Forecast)


def forecast_to_json(forecast: planner.Forecast) -> dict[str, Any]:
    """Plain JSON values; of the links only those that carried something."""
    used = tuple(link for link in forecast.links if link.bytes_per_s > 0)
    values: dict[str, Any] = _FORECAST.dump_python(replace(forecast, links=used), mode="json")
    return values


def forecast_from_json(values: dict[str, Any]) -> planner.Forecast:
    """The inverse of `forecast_to_json`."""
    return _FORECAST.validate_python(values)


def start_simulation(plan: Plan, request: SimulationRequest, *, user: Any) -> Simulation:
    """Queue a simulation."""
    with transaction.atomic():
        asked = Simulation.objects.create(plan=plan, **asdict(request), created_by=user)
        jobs.wake(asked)
    return asked


def run(row: Simulation, lease: Lease) -> jobs.Outcome:
    """The job: serve the row's plan its workload."""
    is_online = row.workload != "backlog"
    progress = _Progress(row, lease, runs=2 if is_online else 1)
    lease.write = progress.write
    problem, plan = problem_from_dict(row.plan.problem), plan_from_dict(row.plan.document)

    def served(demand: Demand) -> planner.Forecast:
        return planner.simulate(
            problem,
            placement=plan.placement,
            routing_weights=plan.routing_weights,
            demand=demand,
            policy=POLICIES[row.policy],
            partial_inference=plan.partial_inference,
            options=planner.SimulationOptions(
                warm_up_s=WARM_UP_S, window_s=WINDOW_S, seed=row.seed
            ),
            engine_maker=progress.engine_of,
        )

    backlog = served(Backlog(lengths=scaled_lengths(problem.workload, seed=row.seed)))
    if not is_online:
        return jobs.Outcome(columns={"forecast": forecast_to_json(backlog)})
    rate = rate_at(row.share or 0.0, of=backlog, problem=problem)
    times = (
        bursts(rate_per_s=rate, size=row.burst_size or 1, seed=row.seed)
        if row.workload == "bursts"
        else poisson(rate_per_s=rate, seed=row.seed)
    )
    lengths = scaled_lengths(problem.workload, seed=row.seed)
    online = served(Arrivals(requests=requests(times, lengths)))
    return jobs.Outcome(columns={"forecast": forecast_to_json(online), "requests_per_s": rate})


def rate_at(share: float, *, of: planner.Forecast, problem: planner.Problem) -> float:
    """Requests/s at a share of what was served while requests always waited."""
    workload = problem.workload
    return rate_at_share_of_peak(
        of.decode_tokens_per_s + of.prompt_tokens_per_s,
        share=share,
        mean_tokens_per_request=workload.mean_prompt_tokens + workload.mean_output_tokens,
    )


class _Progress:
    """Writes how far the `runs` of the simulator are; the lease's thread calls `write`."""

    def __init__(self, row: Simulation, lease: Lease, *, runs: int) -> None:
        self._row, self._lease, self._runs = row, lease, runs
        self._begun = 0
        self._written, self._written_s = row.progress, 0.0
        self._progress = 0.0

    def engine_of(self, setup: planner.EngineSetup) -> planner.Engine:
        """The engine of the next run. It raises jobs.Cancelled once it is to end."""
        before, whole_s = self._begun, WARM_UP_S + WINDOW_S
        self._begun += 1

        def look(engine: planner.Engine) -> None:
            self._progress = (before + min(1.0, engine.now / whole_s)) / self._runs
            if self._lease.is_cancelled():
                raise jobs.Cancelled

        engine = planner.Engine(setup)
        watched = WatchedEngine(engine, tick_s=whole_s / _LOOKS, on_tick=look)
        return cast(planner.Engine, watched)

    def write(self, ended: bool) -> None:
        now_s = time.monotonic()
        if ended or self._progress == self._written:
            return
        if now_s - self._written_s < _PROGRESS_INTERVAL_S:
            return
        self._written, self._written_s = self._progress, now_s
        with transaction.atomic():
            self._lease.update(progress=self._written)
            content = {"simulation": self._row.pk, "progress": self._written}
            events.emit(self._row.topic, "simulation-progress", content)


class WatchedEngine:
    """`engine` itself, but `on_tick` hears of every `tick_s` of simulated time that has passed, and
    `admitted` counts requests that were let in.

    What `on_tick` raises ends the simulation. It may read and reset the engine's statistics.
    """

    def __init__(
        self, engine: planner.Engine, *, tick_s: float, on_tick: Callable[[Any], None]
    ) -> None:
        self.admitted = 0
        self._engine = engine
        self._tick_s = tick_s
        self._on_tick = on_tick
        self._next_s = engine.now + tick_s

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def admit(self, **request: Any) -> int:
        self.admitted += 1
        return self._engine.admit(**request)

    def advance(self, until_s: float) -> planner.Occurrence | None:
        while self._next_s < until_s:
            occurrence = self._engine.advance(self._next_s)
            if occurrence is not None:
                return occurrence
            self._on_tick(self)
            self._next_s += self._tick_s
        return self._engine.advance(until_s)
