"""Plans that are older than measurements of their cluster, and how they are computed again."""

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from helixweb.common import jobs
from helixweb.inventory.models import Cluster, Profile
from helixweb.inventory.services import measured_links, records
from helixweb.planning.models import Plan, PlanRun
from helixweb.planning.newer_measurements import NewerMeasurements, newer_measurements
from helixweb.planning.services import starting
from planner.domain.placement import LayerRange
from planner.domain.rules import PlacementRules
from planner.plan_options import PlanOptions
from planner.serialization import problem_from_dict
from tests.helixweb.test_profiling import Measured
from tests.helixweb.test_stale_profiles import measure

ENDS = ("laptop", "tower")


def measure_link(cluster: Cluster, bandwidth_bytes_per_s: float = 1e8) -> None:
    measured_links.keep_measured_link(
        cluster, ENDS, bandwidth_bytes_per_s=bandwidth_bytes_per_s, latency_s=0.004
    )


def shown(browser: Client, plan: Plan) -> list[NewerMeasurements | None]:
    """By the plan's page, and by the overview."""
    page = browser.get(reverse("plan-run", args=[plan.run_id]))
    overview = browser.get("/", {"cluster": plan.cluster_id})
    again = f'action="{reverse("plan-run-again", args=[plan.run_id])}"'
    for answer, newer in (
        (page, page.context["newer"]),
        (overview, overview.context["view"]["newer"]),
    ):
        html = answer.content.decode()
        assert ('id="newer-measurements"' in html) == (newer is not None)
        box = html.partition('id="newer-measurements"')[2].partition("</div>")[0]
        assert (again in box) == (newer is not None and newer.computed_since is None)
        assert newer is None or newer.text in box
    return [page.context["newer"], overview.context["view"]["newer"]]


def test_a_plan_that_is_older_than_a_measurement_is_computed_again_by_one_click(
    measured: Measured, browser: Client, plan: Plan
) -> None:
    Plan.unscoped.exclude(pk=plan.pk).delete()  # of which one may have a higher number
    assert shown(browser, plan) == [None, None]
    name = measure(measured, "tower").profile_name
    measure_link(plan.cluster)
    for newer in shown(browser, plan):
        assert newer.profiles == (name,)
        assert newer.links == 1
        assert name in newer.text
    answer = browser.post(reverse("plan-run-again", args=[plan.run_id]))
    run = PlanRun.unscoped.latest("pk")
    assert answer.headers["Location"] == reverse("plan-run", args=[run.pk])
    assert run.options == plan.run.options
    assert run.start_plan == plan
    profiles = problem_from_dict(run.problem).compute_profiles
    assert profiles[name].tokens_per_s == tuple(Profile.unscoped.get(name=name).tokens_per_s)
    for newer in shown(browser, plan):
        assert newer.computed_since == run
    PlanRun.unscoped.filter(pk=run.pk).update(status="failed")
    for newer in shown(browser, plan):
        assert newer.computed_since is None


def test_a_measurement_that_confirms_the_one_before_makes_no_plan_older(
    cluster: Cluster, browser: Client, request: pytest.FixtureRequest
) -> None:
    measure_link(cluster)
    plan = request.getfixturevalue("plan")
    measure_link(cluster, 1.01e8)
    assert shown(browser, plan) == [None, None]
    measure_link(cluster, 2e8)
    assert None not in shown(browser, plan)


def test_a_run_that_goes_on_is_as_old_as_the_first(plan: Plan, user: Any, cluster: Cluster) -> None:
    measure_link(cluster)
    longer = starting.extend_plan_run(PlanRun.unscoped.get(plan=plan), seconds=1, user=user)
    Plan.unscoped.filter(pk=plan.pk).update(run=longer)
    newer = newer_measurements(Plan.unscoped.get(pk=plan.pk))
    assert newer.computed_since is None, "it has the old problem"


@pytest.mark.django_db(transaction=True)  # the thread of its lease writes too
def test_an_answer_of_a_replanning_that_is_adopted_later_is_as_old_as_the_replanning(
    plan: Plan, user: Any, cluster: Cluster
) -> None:
    run = starting.start_replan(
        plan, options=PlanOptions(time_limit_s=0.5), budget_bytes=None, user=user
    )
    jobs.attempt_job(run)
    measure_link(cluster)
    adopted = starting.adopt_point(PlanRun.unscoped.get(pk=run.pk), 0, user=user)
    assert newer_measurements(adopted.plan) is not None


def test_rules_about_nodes_that_are_gone_are_left_out(cluster: Cluster, user: Any) -> None:
    model = cluster.profiles.earliest("pk").model
    rules = PlacementRules(
        excluded_nodes=frozenset({"mini"}), pinned={"laptop": LayerRange(first=2, end=4)},
        max_layers_of={"mini": 1, "tower": 2},
    )  # fmt: skip
    first = starting.start_plan_run(
        cluster=cluster, model=model, options=PlanOptions(rules=rules), user=user
    )
    records.delete(cluster.nodes.get(name="mini"))
    again = starting.compute_again(first, user=user)
    assert again.options["rules"] | {"max_hops": None} == first.options["rules"] | {
        "excluded_nodes": [],
        "max_layers_of": {"tower": 2},
    }


def test_a_plan_of_a_changed_copy_of_the_cluster_is_not_computed_again(
    browser: Client, plan: Plan, cluster: Cluster
) -> None:
    PlanRun.unscoped.filter(plan=plan).update(what_if="without mini")
    measure_link(cluster)
    assert shown(browser, plan) == [None, None]
    browser.post(reverse("plan-run-again", args=[plan.run_id]))
    assert PlanRun.unscoped.count() == 1


def test_what_keeps_a_plan_from_being_computed_again_is_said_on_its_page(
    browser: Client, plan: Plan, cluster: Cluster
) -> None:
    records.delete(cluster.nodes.get(name="tower"))
    records.delete(cluster.nodes.get(name="laptop"))
    answer = browser.post(reverse("plan-run-again", args=[plan.run_id]), follow=True)
    assert answer.redirect_chain[-1][0] == reverse("plan-run", args=[plan.run_id])
    assert "can hold 2 layers" in answer.content.decode()
    assert PlanRun.unscoped.count() == 1
