"""One attempt at simulating a plan: the simulator in this thread, lease and database in another."""

import logging
import time
from dataclasses import replace
from typing import Any

from django.db import transaction
from django.utils import timezone
from pydantic import TypeAdapter

from helixweb.common import events, leases
from helixweb.planning import turns
from helixweb.planning.keeper import LeaseKeeper
from helixweb.planning.models import Simulation
from helixweb.planning.watched_engine import watched
from planner.domain.errors import PlannerError
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

logger = logging.getLogger(__name__)
Status = Simulation.Status
Workload = Simulation.Workload
# A simulation that has taken its worker down this often is not tried again.
MAX_ATTEMPTS = 3
WARM_UP_S, WINDOW_S = 300.0, 600.0
POLICIES: dict[str, ServingPolicy] = {
    Simulation.Policy.RUNTIME: RUNTIME_POLICY,
    Simulation.Policy.PUBLISHED: PUBLISHED_POLICY,
}
_LOOKS = 200
_PROGRESS_INTERVAL_S = 0.5
_FORECAST = TypeAdapter(Forecast)


class SimulationCancelled(Exception):
    """Somebody asked it to end."""


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


def waiting_ids(run_id: int) -> list[int]:
    """Simulations of the run's plan that nobody works on yet."""
    waiting = Simulation.objects.filter(plan__run=run_id, status=Status.QUEUED)
    return list(waiting.values_list("pk", flat=True))


def run(*, simulation_id: int) -> None:
    """Claim it, simulate, store what was found. Nothing if it is owned, finished, or must wait."""
    attempt = turns.claim(Simulation, task_id=simulation_id, now=timezone.now())
    if attempt is None:
        return
    row = Simulation.objects.select_related("plan").get(pk=simulation_id)
    try:
        _attempt(row, attempt=attempt)
    except leases.LostLease as lost:
        logger.info("%s; its answer is dropped", lost)


class _Keeper(LeaseKeeper):
    """Writes how far the simulation is as well."""

    def __init__(self, row: Simulation, *, attempt: int) -> None:
        super().__init__(Simulation, task_id=row.pk, attempt=attempt)
        self._row = row
        self._written, self._written_s = row.progress, 0.0
        self.progress = 0.0

    def write(self, *, ended: bool) -> None:
        now_s = time.monotonic()
        if ended or self.progress == self._written:
            return
        if now_s - self._written_s < _PROGRESS_INTERVAL_S:
            return
        self._written, self._written_s = self.progress, now_s
        owned = Simulation.objects.filter(
            pk=self._task_id, attempt=self._attempt, status=Status.RUNNING
        )
        with transaction.atomic():
            if not owned.update(progress=self._written):
                raise leases.LostLease(f"{self._name}: attempt {self._attempt} lost its lease")
            content = {"simulation": self._task_id, "progress": self._written}
            events.emit(self._row.topic, "simulation-progress", content)


def _attempt(row: Simulation, *, attempt: int) -> None:
    if attempt > MAX_ATTEMPTS:
        error = f"the worker died {MAX_ATTEMPTS} times while simulating this plan"
        _finish(row, attempt=attempt, status=Status.FAILED, error=error)
        return
    keeper = _Keeper(row, attempt=attempt)
    try:
        with keeper:
            found = _simulated(row, keeper=keeper)
    except SimulationCancelled:
        _finish(row, attempt=attempt, status=Status.CANCELLED)
    except PlannerError as error:
        _finish(row, attempt=attempt, status=Status.FAILED, error=str(error))
    else:
        _finish(row, attempt=attempt, status=Status.SUCCEEDED, **found)


def _simulated(row: Simulation, *, keeper: _Keeper) -> dict[str, Any]:
    problem, plan = problem_from_dict(row.plan.problem), plan_from_dict(row.plan.document)
    is_online = row.workload != Workload.BACKLOG
    runs = 2 if is_online else 1
    backlog = _served(row, problem, plan, _backlog(row, problem), keeper=keeper, part=(0, runs))
    if not is_online:
        return {"forecast": forecast_to_json(backlog)}
    workload = problem.workload
    rate = rate_at_share_of_peak(
        backlog.decode_tokens_per_s + backlog.prompt_tokens_per_s,
        share=row.share or 0.0,
        mean_tokens_per_request=workload.mean_prompt_tokens + workload.mean_output_tokens,
    )
    online = _served(
        row, problem, plan, _arrivals(row, problem, rate), keeper=keeper, part=(1, runs)
    )
    return {"forecast": forecast_to_json(online), "requests_per_s": rate}


def _served(
    row: Simulation,
    problem: Problem,
    plan: Plan,
    demand: Demand,
    *,
    keeper: _Keeper,
    part: tuple[int, int],
) -> Forecast:
    whole_s = WARM_UP_S + WINDOW_S
    before, parts = part

    def look(engine: Engine) -> None:
        keeper.progress = (before + min(1.0, engine.now / whole_s)) / parts
        if keeper.is_cancelled():
            raise SimulationCancelled

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


def _finish(row: Simulation, *, attempt: int, status: Simulation.Status, **fields: Any) -> None:
    with transaction.atomic():
        leases.finish(
            Simulation,
            task_id=row.pk,
            attempt=attempt,
            status=status,
            now=timezone.now(),
            **fields,
        )
        content = {"simulation": row.pk, "plan": row.plan_id, "status": status.value}
        events.emit(row.topic, "simulation", content)
