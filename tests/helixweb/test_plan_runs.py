"""A plan run: queued, claimed, searched, and ended once, whatever happens to its workers; long
tasks take turns, and who waited is woken."""

import math
import threading
import time
from dataclasses import replace
from datetime import timedelta
from queue import Empty
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

import planner
from helixweb.common import jobs
from helixweb.common.models import Event, Job
from helixweb.common.refusals import Conflict
from helixweb.inventory.as_code.importing import import_problem
from helixweb.inventory.models import Cluster, LanguageModel, Profile
from helixweb.planning import incumbents
from helixweb.planning.models import Explanation, Incumbent, ModelMix, Plan, PlanRun, Simulation
from helixweb.planning.presentation import run_curve
from helixweb.planning.services import solving, starting
from planner.domain import plan as domain
from planner.domain.placement import LayerRange, Placement
from planner.domain.plan_forecast import Objective
from planner.placers.base import CancelToken, InvalidOptions, NeverCancelled
from planner.plan_instances import plan_by_method
from planner.plan_options import PlanOptions
from planner.robust import survival
from planner.serialization import plan_from_dict, problem_from_dict
from tests.helixweb.looking import contains, fresh
from tests.helixweb.searching import begun, claimed, record

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("messages")]
Status = Job.Status
OPTIONS = PlanOptions(objective="flow", time_limit_s=20)


@pytest.fixture
def run(cluster: Cluster, user: Any) -> PlanRun:
    """Queued, without a message."""
    return begun(cluster, user, OPTIONS)


def incumbent(flow: float, bound: float = math.inf, elapsed_s: float = 0.1) -> domain.Incumbent:
    return domain.Incumbent(
        elapsed_s=elapsed_s,
        flow_tokens_per_s=flow,
        upper_bound_tokens_per_s=bound,
        placer="swarm",
        placement=Placement(layers={"tower": LayerRange(first=0, end=3)}),
    )


def told_to_stop(lease: CancelToken) -> bool:
    """Waits for it, at most a minute."""
    return any(lease.is_cancelled() or time.sleep(0.02) for _ in range(3000))


def lose_worker(run: PlanRun) -> None:
    """What `kill -9` leaves behind once the lease has run out."""
    PlanRun.unscoped.filter(pk=run.pk).update(
        lease_expires_at=timezone.now() - timedelta(seconds=1)
    )


def test_a_new_run_has_its_problem_and_message(cluster: Cluster, user: Any, messages: Any) -> None:
    with transaction.atomic():
        run = begun(cluster, user, OPTIONS)
        assert len(messages) == 0
    assert messages.get(timeout=1).payload[1] == {"kind": "search", "job_id": run.pk}
    cluster.nodes.all().delete()
    assert len(problem_from_dict(run.problem).cluster.nodes) == 3


def test_a_run_ends_with_a_checked_plan_and_tells_its_page(run: PlanRun) -> None:
    jobs.work(kind="search", job_id=run.pk)
    assert (fresh(run).status, run.attempt, run.error) == (Status.SUCCEEDED, 1, "")
    plan = plan_from_dict(run.plan.document)
    assert plan.flow.value_tokens_per_s == run.flow_tokens_per_s == run.plan.flow_tokens_per_s
    assert set(plan.placement.layers) <= {"tower", "laptop", "mini"}
    assert run.plan.problem == run.problem
    last = run.incumbents.latest("pk")
    assert last.flow_tokens_per_s == run.flow_tokens_per_s
    told = [event.type for event in Event.objects.filter(topic=run.topic).order_by("pk")]
    assert told[0] == told[-1] == "plan-run"
    assert set(told[1:-1]) == {"incumbent"}


def test_a_message_delivered_twice_solves_once(run: PlanRun) -> None:
    jobs.work(kind="search", job_id=run.pk)
    jobs.work(kind="search", job_id=run.pk)
    assert fresh(run).attempt == 1
    assert Plan.unscoped.count() == 1


def test_a_queued_run_is_cancelled_at_once_and_never_solved(run: PlanRun) -> None:
    assert jobs.cancel(run)
    jobs.attempt_job(run)
    assert (fresh(run).status, run.attempt) == (Status.CANCELLED, 0)
    assert not jobs.cancel(run)


def test_the_next_attempt_goes_on_from_what_the_lost_one_reached(run: PlanRun) -> None:
    jobs.attempt_job(run)
    best = run.incumbents.order_by("-flow_tokens_per_s").first()
    assert best is not None
    Plan.unscoped.all().delete()
    PlanRun.unscoped.filter(pk=run.pk).update(status=Status.RUNNING, finished_at=None)
    lose_worker(run)
    jobs.attempt_job(run)
    assert (fresh(run).status, run.attempt) == (Status.SUCCEEDED, 2)
    resumed = run.incumbents.filter(attempt=2).earliest("pk")
    assert resumed.placement == best.placement
    assert resumed.elapsed_s >= best.elapsed_s


def test_an_accepted_run_succeeds_with_the_best_it_has(
    run: PlanRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = threading.Event()
    record_found = incumbents.record_incumbents

    def record_and_tell(*arguments: Any, **options: Any) -> None:
        record_found(*arguments, **options)
        written.set()

    def search_until_accepted(*arguments: Any, **options: Any) -> domain.Plan:
        cancel = options["cancel"]
        plan = plan_by_method(*arguments, **{**options, "cancel": NeverCancelled()})
        assert written.wait(timeout=60)
        assert solving.accept_best_so_far(run)
        assert told_to_stop(cancel)
        return replace(plan, stop_reason="cancelled")

    monkeypatch.setattr(incumbents, "record_incumbents", record_and_tell)
    monkeypatch.setattr(planner, "plan_by_method", search_until_accepted)
    jobs.attempt_job(run)
    assert fresh(run).status == Status.SUCCEEDED
    assert plan_from_dict(run.plan.document).stop_reason == "accepted"
    assert not solving.accept_best_so_far(run)


def test_an_extension_goes_on_from_what_the_run_reached(run: PlanRun, user: Any) -> None:
    jobs.attempt_job(run)
    run.refresh_from_db()
    longer = starting.extend_plan_run(run, seconds=5, user=user)
    assert (longer.problem, longer.options["seed"]) == (run.problem, run.options["seed"] + 1)
    jobs.attempt_job(longer)
    assert fresh(longer).status == Status.SUCCEEDED
    first = longer.incumbents.earliest("pk")
    assert first.flow_tokens_per_s == pytest.approx(run.flow_tokens_per_s)
    assert longer.flow_tokens_per_s >= run.flow_tokens_per_s


def test_a_run_that_found_nothing_is_not_extended(run: PlanRun, user: Any) -> None:
    jobs.cancel(run)
    with pytest.raises(Conflict, match="found no placement to go on from"):
        starting.extend_plan_run(run, seconds=5, user=user)


def test_a_run_begins_with_the_plan_it_was_given(run: PlanRun, user: Any) -> None:
    jobs.attempt_job(run)
    run.refresh_from_db()
    options = replace(OPTIONS, baselines=(), placer="milp", time_limit_s=5)
    again = starting.start_plan_run(
        cluster=run.cluster, model=run.model, options=options, user=user, start_plan=run.plan
    )
    jobs.attempt_job(again)
    first = again.incumbents.earliest("pk")
    assert first.placer == "start"
    assert first.placement == plan_from_dict(run.plan.document).placement.as_lists()


@pytest.mark.parametrize(
    ("objective", "label"),
    [
        ("flow", "Flow left after the worst loss"),
        ("decode", "Decode throughput after the worst loss"),
    ],
)
def test_a_plan_that_survives_a_loss_does(
    cluster: Cluster, user: Any, objective: Objective, label: str
) -> None:
    options = replace(OPTIONS, time_limit_s=5, objective=objective)
    profile = cluster.profiles.get(name="small")
    profile.max_layers, profile.tokens_per_s = 4, [150.0, 70.0, 40.0, 30.0]
    profile.kv_capacity_token_layers = [1000.0, 500.0, 300.0, 200.0]
    profile.vram_bytes = 8e6
    profile.save()
    run = begun(cluster, user, options, survive_one_loss=True)
    jobs.attempt_job(run)
    assert (fresh(run).status, run.error) == (Status.SUCCEEDED, "")
    plan = plan_from_dict(run.plan.document)
    left = survival(problem_from_dict(run.problem), plan.placement, options=options)
    assert left.value > 0
    rows = list(run.incumbents.order_by("pk"))
    survived = [row.objective_value for row in rows]
    assert survived == sorted(survived)
    assert rows[0].elapsed_s < run.plan.document["elapsed_s"]  # told of while it searched
    assert rows[-1].flow_tokens_per_s == plan.flow.value_tokens_per_s
    assert rows[-1].placement == plan.placement.as_lists()
    assert survived[-1] == pytest.approx(left.value, rel=1e-3)
    assert run.objective_value == survived[-1]
    assert str(rows[-1].figure) == str(run.figure)
    assert run.figure.label == label
    assert run_curve(run, now=timezone.now()).summary.startswith(label)


def test_best_incumbent_joins_the_best_flow_and_the_tightest_bound(run: PlanRun) -> None:
    lease = claimed(run)
    record(lease, run, incumbent(10.0, 90.0), incumbent(20.0), incumbent(20.0, 50.0))
    best = incumbents.best_incumbent(run.pk)
    assert (best.flow_tokens_per_s, best.upper_bound_tokens_per_s) == (20.0, 50.0)


def test_a_zombie_writes_nothing(run: PlanRun) -> None:
    zombie = claimed(run)
    lose_worker(run)
    assert jobs.claim(run) == 2
    events_before = Event.objects.count()
    with pytest.raises(jobs.LostLease):
        record(zombie, run, incumbent(1.0))
    with pytest.raises(jobs.LostLease):
        jobs.end(run, zombie.attempt, jobs.Outcome(status=Status.FAILED, columns={"error": "late"}))
    assert (fresh(run).status, run.error) == (Status.RUNNING, "")
    assert not Incumbent.unscoped.exists()
    assert Event.objects.count() == events_before


def test_a_run_that_kills_every_worker_is_given_up_with_a_remedy(run: PlanRun) -> None:
    for _ in range(jobs.MAX_ATTEMPTS):
        assert jobs.claim(run) is not None
        lose_worker(run)
    jobs.attempt_job(run)
    assert fresh(run).status == Status.FAILED
    contains(run.error, "died 3 times", "more memory")


def test_a_run_without_any_flow_fails_with_the_planners_words(run: PlanRun) -> None:
    run.problem["network"] = {"region_pairs": [], "links": []}
    run.save()
    jobs.attempt_job(run)
    assert fresh(run).status == Status.FAILED
    assert "no request can be served" in run.error
    assert not Plan.unscoped.exists()


def test_better_bounds_are_written_sparsely_but_the_last_one_always(run: PlanRun) -> None:
    run.started_at = timezone.now() - timedelta(seconds=5)
    with claimed(run) as lease:
        recorder = solving.Recorder(run, lease)
        lease.write = recorder.write
        for bound in range(1000, 100, -1):
            recorder.report(incumbent(10.0, float(bound), elapsed_s=2.0))
    rows = list(run.incumbents.order_by("pk"))
    assert len(rows) < 10
    assert rows[-1].upper_bound_tokens_per_s == 101.0
    assert rows[-1].elapsed_s == pytest.approx(7.0, abs=1.0)


def test_a_search_hears_of_cancel_and_of_a_lost_lease(run: PlanRun) -> None:
    lease = claimed(run)
    with lease:
        assert jobs.cancel(run)
        assert told_to_stop(lease)
        assert not lease.lost
    PlanRun.unscoped.filter(pk=run.pk).update(cancel_requested=False)
    lose_worker(run)
    assert jobs.claim(run) == lease.attempt + 1
    with jobs.Lease(run, lease.attempt) as lost:
        recorder = solving.Recorder(run, lost)
        lost.write = recorder.write
        recorder.report(incumbent(1.0))
        assert told_to_stop(lost)
        assert lost.lost
    assert not Incumbent.unscoped.exists()


def test_a_plan_for_the_price_needs_all_prices(user: Any, measured_problem: dict[str, Any]) -> None:
    cluster = import_problem(problem_from_dict(measured_problem))
    model = LanguageModel.objects.get()
    options = PlanOptions(objective="cost", time_limit_s=2)
    run = starting.start_plan_run(cluster=cluster, model=model, options=options, user=user)
    jobs.attempt_job(run)
    assert (fresh(run).status, run.error) == ("succeeded", "")
    forecast = plan_from_dict(run.plan.document).forecast
    assert run.objective_value == forecast.value > 0
    Profile.unscoped.update(price_per_hour=None)
    with pytest.raises(InvalidOptions, match="price_per_hour"):
        starting.start_plan_run(cluster=cluster, model=model, options=options, user=user)


@pytest.fixture
def running(plan: Plan, messages: Any) -> tuple[Simulation, int]:
    """A simulation and the attempt at it; what was sent for its plan's run is gone."""
    messages.clear()
    row = plan.simulations.get()
    attempt = claim(row)
    assert attempt is not None
    return row, attempt


claim = jobs.claim


def another(plan: Plan) -> Simulation:
    return Simulation.objects.create(plan=plan)


def end(row: Job, attempt: int) -> None:
    jobs.Lease(row, attempt).update(status=Status.FAILED)


def sent(messages: Any) -> list[dict[str, int]]:
    """What the messages on their way say."""
    found = []
    while True:
        try:
            message = messages.get(block=False)
        except Empty:
            return found
        message.ack()
        found.append(message.payload[1])


def test_one_simulation_runs_at_a_time_and_explanations_wait_as_well(
    plan: Plan, cluster: Cluster, user: Any, running: tuple[Simulation, int]
) -> None:
    run = begun(cluster, user, PlanOptions())
    assert claim(run) == 1, "a search waits for none"
    waiting = [another(plan), Explanation.unscoped.get(plan=plan)]
    assert [claim(row) for row in waiting] == [None, None]
    end(*running)
    assert [claim(row) for row in waiting] == [1, None]
    Simulation.unscoped.filter(pk=waiting[0].pk).update(lease_expires_at=timezone.now())
    assert claim(waiting[1]) == 1, "a lost lease keeps none waiting"


def test_a_mix_waits_for_a_search(cluster: Cluster, user: Any) -> None:
    run = begun(cluster, user, PlanOptions())
    mix = ModelMix.objects.create(cluster=cluster, options={})
    attempt = claim(run)
    assert attempt is not None
    assert claim(mix) is None
    end(run, attempt)
    assert claim(mix) == 1


def test_the_oldest_of_each_kind_is_woken_when_the_turn_is_free(
    plan: Plan, running: tuple[Simulation, int], messages: Any
) -> None:
    waiting = [another(plan), another(plan)]
    end(*running)
    jobs.work(kind="simulation", job_id=running[0].pk)
    explanation = Explanation.unscoped.get(plan=plan)
    assert sent(messages) == [
        {"kind": "explanation", "job_id": explanation.pk},
        {"kind": "simulation", "job_id": waiting[0].pk},
    ]


def test_who_waits_wakes_nobody(plan: Plan, running: tuple[Simulation, int], messages: Any) -> None:
    waiting = another(plan)
    jobs.work(kind="simulation", job_id=waiting.pk)
    jobs.work(kind="explanation", job_id=Explanation.unscoped.get(plan=plan).pk)
    assert (fresh(waiting).status, sent(messages)) == (Status.QUEUED, [])


def test_a_mix_that_ends_wakes_a_search(cluster: Cluster, user: Any, messages: Any) -> None:
    mix = ModelMix.objects.create(cluster=cluster, options={}, status=Status.FAILED)
    run = PlanRun.objects.create(
        cluster=cluster, model=LanguageModel.objects.get(), problem={}, options={}, created_by=user
    )
    jobs.work(kind="mix", job_id=mix.pk)
    assert sent(messages) == [{"kind": "search", "job_id": run.pk}]
