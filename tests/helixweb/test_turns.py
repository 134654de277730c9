"""Long tasks take turns: no search waits for a simulation, and who waited is woken."""

from queue import Empty
from typing import Any

import pytest
from django.utils import timezone

from helixweb.common import jobs
from helixweb.common.jobs import Lease
from helixweb.common.models import Job
from helixweb.inventory.models import Cluster, LanguageModel
from helixweb.planning.models import Explanation, ModelMix, Plan, PlanRun, Simulation
from planner.plan_options import PlanOptions
from tests.helixweb.looking import fresh
from tests.helixweb.searching import begun

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("messages")]
Status = Job.Status


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
    Lease(row, attempt).update(status=Status.FAILED)


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


def test_a_search_that_waited_is_woken_when_a_mix_has_ended(
    cluster: Cluster, user: Any, messages: Any
) -> None:
    mix = ModelMix.objects.create(cluster=cluster, options={}, status=Status.FAILED)
    run = PlanRun.objects.create(
        cluster=cluster, model=LanguageModel.objects.get(), problem={}, options={}, created_by=user
    )
    jobs.work(kind="mix", job_id=mix.pk)
    assert sent(messages) == [{"kind": "search", "job_id": run.pk}]
