"""Jobs about plans: explain what limits one, what of its objective survives a loss and what more
would bring; simulate what it delivers; plan several models on one cluster at once."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, cast

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop
from pydantic import TypeAdapter

import planner
from helixweb.common import events, jobs
from helixweb.common.jobs import Lease
from helixweb.common.refusals import Conflict
from helixweb.common.sentences import sentence
from helixweb.inventory.models import Cluster, LanguageModel
from helixweb.inventory.services.problems import build_problem
from helixweb.planning import incumbents
from helixweb.planning.models import Explanation, MixShare, ModelMix, Plan, PlanRun, Simulation
from helixweb.planning.options import SimulationRequest, options_from_json, options_to_json
from helixweb.planning.stored import running_options, stored_plan, stored_problem
from planner import (
    InvalidProblem,
    InvalidRules,
    ModelShare,
    PlanOptions,
    check_rules,
    marginal_values,
    plan_models,
    sentences_of_min_cut,
    survival,
    zero_moves,
)
from planner.serialization import plan_from_dict, problem_from_dict, problem_to_dict
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

_FOUND = ("objective", "limits", "survival_tokens_per_s", "worst_node", "values")
# Of a simulation's window in s, in lifetimes of a request and in requests; half as much warms up.
# het42's served tokens settle after 4.5 lifetimes.
MOST_WINDOW_S, LEAST_LIFETIMES, LEAST_REQUESTS = 600.0, 10.0, 5000.0
POLICIES: dict[str, planner.ServingPolicy] = {
    "runtime": planner.RUNTIME_POLICY,
    "published": planner.PUBLISHED_POLICY,
}
_LOOKS = 200
_PROGRESS_INTERVAL_S = 0.5
_FORECAST = TypeAdapter(planner.Forecast)
LEAST_MODELS = 2


def explain_again(plan: Plan, *, search_s: float) -> Explanation:
    """Queue an explanation with `search_s` seconds of replanning for each kind of node.

    What is known is shown until it has ended. It is a new row: a worker that lost the old one can
    write nothing into it. Raises Conflict while one is under way.
    """
    with transaction.atomic():
        known = Explanation.unscoped.select_for_update().filter(plan=plan).first()
        if known is not None and not known.is_finished:
            raise Conflict(f"Plan {plan.pk} is being explained already; wait for the end.")
        kept = {name: getattr(known, name) for name in _FOUND if known is not None}
        if known is not None:
            known.delete()
        asked = Explanation.objects.create(plan=plan, search_s=search_s, **kept)
        jobs.wake(asked)
    return asked


def explain(row: Explanation, lease: Lease) -> jobs.Outcome:
    """The job: work out what explains the row's plan."""
    problem, plan = stored_problem(row.plan), stored_plan(row.plan)
    options = running_options(row.plan).for_running(plan)
    kept, flow = zero_moves(problem, plan.placement, options=options)
    worst = survival(problem, plan.placement, options=options)
    values = marginal_values(
        problem, plan.placement, options=options, search_s=row.search_s, cancel=lease
    )
    return jobs.Outcome(
        columns={
            "objective": options.objective,
            "limits": [
                sentence(message, **values)
                for message, values in sentences_of_min_cut(problem, kept, flow)
            ],
            "survival_tokens_per_s": worst.value,
            "worst_node": worst.worst_node,
            "values": [{**asdict(value), "gain": value.gain} for value in values],
        }
    )


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


def simulate(row: Simulation, lease: Lease) -> jobs.Outcome:
    """The job: serve the row's plan its workload."""
    is_online = row.workload != "backlog"
    progress = _Progress(row, lease, runs=2 if is_online else 1)
    lease.write = progress.write
    problem, plan = problem_from_dict(row.plan.problem), plan_from_dict(row.plan.document)

    def served(demand: Demand, *, share: float = 1.0) -> planner.Forecast:
        window_s = window_of(problem, plan, policy=POLICIES[row.policy], share=share)
        progress.whole_s = 1.5 * window_s
        return planner.simulate(
            problem,
            placement=plan.placement,
            routing_weights=plan.routing_weights,
            demand=demand,
            policy=POLICIES[row.policy],
            partial_inference=plan.partial_inference,
            options=planner.SimulationOptions(
                warm_up_s=0.5 * window_s, window_s=window_s, seed=row.seed
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
    online = served(Arrivals(requests=requests(times, lengths)), share=row.share or 1.0)
    return jobs.Outcome(columns={"forecast": forecast_to_json(online), "requests_per_s": rate})


def window_of(
    problem: planner.Problem,
    plan: planner.Plan,
    *,
    policy: planner.ServingPolicy,
    share: float = 1.0,
) -> float:
    """Simulated seconds that say enough of a plan at a share of its peak: less than MOST_WINDOW_S
    where requests are short and many."""
    options = PlanOptions(objective="decode", policy=policy)
    forecast = planner.estimated_forecast(problem, plan.placement, options=options)
    if forecast is None:
        return MOST_WINDOW_S
    estimated = forecast.estimated
    requests_per_s = estimated.decode_tokens_per_s / problem.workload.mean_output_tokens
    lifetimes_s = LEAST_LIFETIMES * estimated.requests_in_flight / requests_per_s
    return min(MOST_WINDOW_S, max(lifetimes_s, LEAST_REQUESTS / (share * requests_per_s)))


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
        self.whole_s = 1.5 * MOST_WINDOW_S  # of the next run
        self._begun = 0
        self._written, self._written_s = row.progress, 0.0
        self._progress = 0.0

    def engine_of(self, setup: planner.EngineSetup) -> planner.Engine:
        """The engine of the next run. It raises jobs.Cancelled once it is to end."""
        before, whole_s = self._begun, self.whole_s
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


def start_model_mix(
    *, cluster: Cluster, weights: Mapping[LanguageModel, float], options: PlanOptions, user: Any
) -> ModelMix:
    """Queue a plan for each model, served by the weights, on the inventory as it is.

    Raises InvalidProblem, InvalidRules and ModelDoesNotFit, before anything is written.
    """
    if len(weights) < LEAST_MODELS:
        raise InvalidProblem(
            _("%(count)s models are no mix; choose %(least_models)s or more")
            % {"count": len(weights), "least_models": LEAST_MODELS}
        )
    if options.rules.pinned:
        raise InvalidRules(
            _(
                "node %(pinned)s is pinned, but several models share the cluster; pins "
                "work for one model only"
            )
            % {"pinned": repr(min(options.rules.pinned))}
        )
    shares = []
    for model, weight in weights.items():
        problem = build_problem(cluster, model)
        check_rules(problem, options.rules)
        shares.append((model, ModelShare(problem=problem, weight=weight)))
    with transaction.atomic():
        mix = ModelMix.objects.create(
            cluster=cluster, options=options_to_json(options), created_by=user
        )
        for model, share in shares:
            MixShare.objects.create(
                mix=mix, model=model, weight=share.weight, problem=problem_to_dict(share.problem)
            )
        names = ", ".join(model.name for model in weights)
        said = sentence(
            gettext_noop("%(user)s started a mix of %(names)s."), user=str(user), names=names
        )
        events.emit(f"cluster:{cluster.pk}", "event", said)
        jobs.wake(mix)
    return mix


def plan_mix(mix: ModelMix, lease: Lease) -> jobs.Outcome:
    """The job: plan the mix's models at once; a finished run is stored for each."""
    shares = list(mix.shares.order_by("pk"))
    found = plan_models(
        tuple(
            ModelShare(problem=problem_from_dict(share.problem), weight=share.weight)
            for share in shares
        ),
        options=options_from_json(mix.options),
        cancel=lease,
    )

    def store() -> dict[str, Any]:
        for share, plan in zip(shares, found.plans, strict=True):
            run = PlanRun(
                cluster_id=mix.cluster_id,
                model_id=share.model_id,
                problem=share.problem,
                options=_options_beside(mix, plan, found.plans),
                created_by_id=mix.created_by_id,
                mix=mix,
            )
            incumbents.record_finished_run(run, plan, now=timezone.now())
        return {}

    return jobs.Outcome(
        columns={
            "level_tokens_per_s": found.level_tokens_per_s,
            "level_bound_tokens_per_s": found.level_bound_tokens_per_s,
        },
        store=store,
    )


def _options_beside(
    mix: ModelMix, plan: planner.Plan, plans: Sequence[planner.Plan]
) -> dict[str, Any]:
    """The mix's options, with the other models' nodes left to them."""
    options = options_from_json(mix.options)
    others = {name for other in plans if other is not plan for name in other.placement.layers}
    rules = replace(options.rules, excluded_nodes=options.rules.excluded_nodes | others)
    return options_to_json(replace(options, rules=rules))
