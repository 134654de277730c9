"""The work of a simulation: the simulator in this thread, lease and database in another."""

import time
from dataclasses import replace
from typing import Any

from django.db import transaction
from pydantic import TypeAdapter

from helixweb.common import events
from helixweb.common.jobs import Cancelled, Outcome
from helixweb.common.leases import Lease
from helixweb.planning.models import Simulation
from helixweb.planning.watched_engine import watched
from planner.domain.plan import Plan
from planner.domain.problem import Problem
from planner.domain.serving_policy import PUBLISHED_POLICY, RUNTIME_POLICY, ServingPolicy
from planner.serialization import plan_from_dict, problem_from_dict
from planner.simulator.compiled.compiled_engine import new_engine
from planner.simulator.engine import Engine, EngineSetup
from planner.simulator.forecast import Forecast
from planner.simulator.simulate import SimulationOptions, simulate
from planner.workload.arrivals import bursts, poisson, rate_at_share_of_peak, requests
from planner.workload.demand import Arrivals, Backlog, Demand
from planner.workload.lengths import scaled_lengths

Workload = Simulation.Workload
WARM_UP_S, WINDOW_S = 300.0, 600.0
POLICIES: dict[str, ServingPolicy] = {
    Simulation.Policy.RUNTIME: RUNTIME_POLICY,
    Simulation.Policy.PUBLISHED: PUBLISHED_POLICY,
}
_LOOKS = 200
_PROGRESS_INTERVAL_S = 0.5
_FORECAST = TypeAdapter(Forecast)


def forecast_to_json(forecast: Forecast) -> dict[str, Any]:
    """Plain JSON values; of the links only those that carried something."""
    used = tuple(link for link in forecast.links if link.bytes_per_s > 0)
    values: dict[str, Any] = _FORECAST.dump_python(
        replace(forecast, links=used, pipelines=()), mode="json"
    )
    return values


def forecast_from_json(values: dict[str, Any]) -> Forecast:
    """What `forecast_to_json` wrote."""
    return _FORECAST.validate_python(values)


def run(row: Simulation, lease: Lease) -> Outcome:
    """Serve the row's plan its workload."""
    progress = _Progress(row, lease)
    lease.write = progress.write
    problem, plan = problem_from_dict(row.plan.problem), plan_from_dict(row.plan.document)
    is_online = row.workload != Workload.BACKLOG
    runs = 2 if is_online else 1
    backlog = _served(row, problem, plan, _backlog(row, problem), progress=progress, part=(0, runs))
    if not is_online:
        return Outcome(columns={"forecast": forecast_to_json(backlog)})
    workload = problem.workload
    rate = rate_at_share_of_peak(
        backlog.decode_tokens_per_s + backlog.prompt_tokens_per_s,
        share=row.share or 0.0,
        mean_tokens_per_request=workload.mean_prompt_tokens + workload.mean_output_tokens,
    )
    online = _served(
        row, problem, plan, _arrivals(row, problem, rate), progress=progress, part=(1, runs)
    )
    return Outcome(columns={"forecast": forecast_to_json(online), "requests_per_s": rate})


class _Progress:
    """Writes how far the simulation is; the lease's thread calls `write`."""

    def __init__(self, row: Simulation, lease: Lease) -> None:
        self._row, self._lease = row, lease
        self._written, self._written_s = row.progress, 0.0
        self.progress = 0.0

    def look(self, progress: float) -> None:
        """Note how far it is. Raises Cancelled once it is to end."""
        self.progress = progress
        if self._lease.is_cancelled():
            raise Cancelled

    def write(self, ended: bool) -> None:
        now_s = time.monotonic()
        if ended or self.progress == self._written:
            return
        if now_s - self._written_s < _PROGRESS_INTERVAL_S:
            return
        self._written, self._written_s = self.progress, now_s
        with transaction.atomic():
            self._lease.update(progress=self._written)
            content = {"simulation": self._row.pk, "progress": self._written}
            events.emit(self._row.topic, "simulation-progress", content)


def _served(
    row: Simulation,
    problem: Problem,
    plan: Plan,
    demand: Demand,
    *,
    progress: _Progress,
    part: tuple[int, int],
) -> Forecast:
    whole_s = WARM_UP_S + WINDOW_S
    before, parts = part

    def look(engine: Engine) -> None:
        progress.look((before + min(1.0, engine.now / whole_s)) / parts)

    def engine_of(setup: EngineSetup) -> Engine:
        return watched(new_engine(setup), tick_s=whole_s / _LOOKS, on_tick=look)

    return simulate(
        problem,
        placement=plan.placement,
        routing_weights=plan.routing_weights,
        demand=demand,
        policy=POLICIES[row.policy],
        partial_inference=plan.partial_inference,
        options=SimulationOptions(warm_up_s=WARM_UP_S, window_s=WINDOW_S, seed=row.seed),
        engine_maker=engine_of,
    )


def _backlog(row: Simulation, problem: Problem) -> Demand:
    return Backlog(
        lengths=scaled_lengths(
            row.seed,
            mean_prompt_tokens=problem.workload.mean_prompt_tokens,
            mean_output_tokens=problem.workload.mean_output_tokens,
        )
    )


def _arrivals(row: Simulation, problem: Problem, rate_per_s: float) -> Demand:
    times = (
        bursts(rate_per_s=rate_per_s, size=row.burst_size or 1, seed=row.seed)
        if row.workload == Workload.BURSTS
        else poisson(rate_per_s=rate_per_s, seed=row.seed)
    )
    lengths = scaled_lengths(
        row.seed,
        mean_prompt_tokens=problem.workload.mean_prompt_tokens,
        mean_output_tokens=problem.workload.mean_output_tokens,
    )
    return Arrivals(requests=requests(times, lengths))
