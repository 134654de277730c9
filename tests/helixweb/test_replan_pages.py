"""From a plan that runs to one for the cluster as it is now."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from helixweb.common import jobs
from helixweb.inventory.models import Cluster, LanguageModel, Node
from helixweb.inventory.services import problems
from helixweb.planning.incumbents import plan_of
from helixweb.planning.models import Plan, PlanRun
from helixweb.planning.services import starting
from planner.domain.placement import LayerRange, Placement
from planner.plan_options import PlanOptions
from planner.replanning.compute_replan import unmoved_score, zero_moves
from planner.serialization import plan_from_dict, plan_to_dict, problem_from_dict
from tests.helixweb.looking import answered, contains, denied, fresh, shows
from tests.helixweb.searching import SEARCH

OPTIONS = PlanOptions(time_limit_s=0.5)
FOUND_SOON = PlanOptions(objective="flow", time_limit_s=0.5)
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def plan(plan: Plan, cluster: Cluster) -> Plan:
    """The plan that runs. Afterwards a second tower joins."""
    Node.objects.create(cluster=cluster, name="tower-2", region="home", profile_name="big")
    return plan


def replanned(run: PlanRun) -> PlanRun:
    jobs.attempt_job(run)
    found = PlanRun.unscoped.get(pk=run.pk)
    assert (found.status, found.error) == ("succeeded", "")
    return found


def test_the_answers_rise_in_bytes_and_flow_and_start_with_no_move(plan: Plan, user: Any) -> None:
    run = replanned(starting.start_replan(plan, options=FOUND_SOON, budget_bytes=None, user=user))
    points = run.replan.points
    moved = [point["moved_bytes"] for point in points]
    flows = [point["flow_tokens_per_s"] for point in points]
    assert moved == sorted(moved)
    assert flows == sorted(flows)
    _, unmoved = zero_moves(
        problem_from_dict(run.problem), plan_from_dict(plan.document).placement, options=FOUND_SOON
    )
    assert (moved[0], flows[0]) == (0, pytest.approx(unmoved.value_tokens_per_s))
    assert run.flow_tokens_per_s == pytest.approx(flows[-1])
    assert flows[-1] > flows[0]
    assert run.incumbents.count() >= 1


def test_too_small_a_budget_fails_with_what_is_needed(
    plan: Plan, user: Any, cluster: Cluster
) -> None:
    options = PlanOptions(time_limit_s=0.5)
    # Several may hold the first layer: which plan was found depends on the machine's speed.
    for name, (first, _) in plan.document["placement"].items():
        if first == 0:
            cluster.links.filter(source=name).delete()
            cluster.links.filter(target=name).delete()
            cluster.nodes.filter(name=name).delete()
    run = starting.start_replan(plan, options=options, budget_bytes=0.0, user=user)
    jobs.attempt_job(run)
    assert fresh(run).status == "failed"
    contains(run.error, "within 0 B of moved layers", "so allow that much")


def test_another_answer_becomes_a_plan_of_its_own(
    plan: Plan, user: Any, api: APIClient, browser: Client
) -> None:
    run = replanned(starting.start_replan(plan, options=OPTIONS, budget_bytes=None, user=user))
    shows(browser.get(f"/plans/{run.pk}/"), "What moved bytes bring", "Make it a plan")
    answer = browser.post(f"/plans/{run.pk}/adopt", {"point": "0"})
    adopted = PlanRun.unscoped.latest("pk")
    assert answer.headers["Location"] == f"/plans/{adopted.pk}/"
    point = run.replan.points[0]
    assert adopted.plan.document["placement"] == point["placement"]
    assert adopted.objective_value == pytest.approx(point["objective_value"])
    assert adopted.plan.document["forecast"]["objective"] == "decode"
    assert adopted.plan.explanation.status == "queued"
    assert b"this plan" in browser.get(f"/plans/{adopted.pk}/").content
    denied(api.post(f"/api/v1/plan-runs/{run.pk}/adopt/", {"point": 99}), 409, "has 0 to")
    assert api.post(f"/api/v1/plan-runs/{plan.run_id}/adopt/", {"point": 0}).status_code == 409
    assert api.post(f"/api/v1/plan-runs/{run.pk}/adopt/", {"point": 0}).status_code == 201
    extended = answered(api.post(f"/api/v1/plan-runs/{run.pk}/extend/", {"seconds": 5}), 409)
    assert "replan again with more time" in extended.json()["detail"]
    browser.post(f"/plans/{run.pk}/adopt", {"point": "x"})
    assert b"There is no answer" in browser.get(f"/plans/{run.pk}/").content


def test_an_adopted_answer_keeps_nodes_apart(plan: Plan, cluster: Cluster, user: Any) -> None:
    apart = Placement(
        layers={
            "tower": LayerRange(first=0, end=3),
            "laptop": LayerRange(first=3, end=4),
            "tower-2": LayerRange(first=0, end=3),
            "mini": LayerRange(first=3, end=4),
        },
        components=(frozenset({"tower", "laptop"}), frozenset({"tower-2", "mini"})),
    )
    found = plan_of(
        problems.build_problem(cluster, plan.model),
        apart,
        options=OPTIONS,
        upper_bound_tokens_per_s=1000.0,
        placer="separate pipelines",
        is_cancelled=False,
        elapsed_s=0.0,
    )
    plan.document = plan_to_dict(found)
    plan.save()
    run = replanned(starting.start_replan(plan, options=OPTIONS, budget_bytes=0.0, user=user))
    adopted = starting.adopt_point(run, 0, user=user)
    assert plan_from_dict(adopted.plan.document).placement == apart


def test_the_form_excludes_silent_nodes(plan: Plan, cluster: Cluster, browser: Client) -> None:
    long_ago = timezone.now() - timedelta(minutes=5)
    cluster.nodes.filter(name="mini").update(joined_at=long_ago, last_seen_at=long_ago)
    page = browser.get(f"/plans/by-id/{plan.pk}/replan").content.decode()
    assert "New since the plan was computed: tower-2." in page
    contains(page, "Silent now: mini.", '<option value="mini" selected>', "Now, no layer moved")
    form = {**SEARCH, "excluded_nodes": "mini", "budget_bytes": "0.001"}
    answer = browser.post(f"/plans/by-id/{plan.pk}/replan", form)
    run = PlanRun.unscoped.latest("pk")
    assert answer.headers["Location"] == f"/plans/{run.pk}/"
    assert run.replan.budget_bytes == pytest.approx(1e6)
    assert run.options["rules"]["excluded_nodes"] == ["mini"]
    refused = browser.post(f"/plans/by-id/{plan.pk}/replan", {**form, "excluded_nodes": "nobody"})
    assert refused.status_code == 422
    assert "&#x27;nobody&#x27;" in refused.content.decode()


def test_what_cannot_be_planned_is_said(plan: Plan, cluster: Cluster, browser: Client) -> None:
    cluster.profiles.all().delete()
    shows(browser.get(f"/plans/by-id/{plan.pk}/replan"), "is not known for model")


def test_rest_replans_and_shows_the_answers(plan: Plan, api: APIClient) -> None:
    unmoved = api.get(f"/api/v1/plans/{plan.pk}/unmoved/").json()
    assert unmoved["added"] == ["tower-2"]
    assert unmoved["flow_tokens_per_s"] == pytest.approx(plan.flow_tokens_per_s)
    address = f"/api/v1/plans/{plan.pk}/replan/"
    answer = answered(api.post(address, {"budget_bytes": 2e6, "options": {"time_limit_s": 1}}), 202)
    run = replanned(PlanRun.unscoped.get(pk=answer.json()["id"]))
    assert run.options["objective"] == "flow"
    shown = api.get(f"/api/v1/plan-runs/{run.pk}/replan/").json()
    assert (shown["running_plan"], shown["budget_bytes"]) == (plan.pk, 2e6)
    assert shown["points"] == run.replan.points
    assert api.get(f"/api/v1/plan-runs/{plan.run_id}/replan/").status_code == 404
    for wrong in ({"budget_bytes": -1}, {"budget": 1}, {"options": {"speed": 1}}):
        assert api.post(address, wrong).status_code == 400, wrong


def test_a_plan_is_replanned_by_its_own_objective(
    plan: Plan, user: Any, api: APIClient, browser: Client
) -> None:
    served = replanned(starting.start_replan(plan, options=OPTIONS, budget_bytes=None, user=user))
    page = browser.get(f"/plans/by-id/{served.plan.pk}/replan").content.decode()
    assert '<option value="decode" selected>' in page
    unmoved = api.get(f"/api/v1/plans/{served.plan.pk}/unmoved/").json()
    assert unmoved["objective"] == "decode"
    # Simulation may have chosen another answer than the best by estimate.
    chosen = plan_from_dict(served.plan.document).placement
    worth = unmoved_score(problem_from_dict(served.problem), chosen, options=OPTIONS)
    assert unmoved["objective_value"] == pytest.approx(worth.objective_value)
    assert page.count(f"{unmoved['objective_value']:,.3g} decode tokens/s") == 2, "then, now"
    long_ago = timezone.now() - timedelta(minutes=5)
    silent = Node.unscoped.filter(name=min(served.plan.document["placement"]))
    silent.update(joined_at=long_ago, last_seen_at=long_ago)
    less = api.get(f"/api/v1/plans/{served.plan.pk}/unmoved/").json()
    assert 0 <= less["objective_value"] < unmoved["objective_value"]
    silent.update(joined_at=None, last_seen_at=None)
    address = f"/api/v1/plans/{served.plan.pk}/replan/"
    again = api.post(address, {"options": {"time_limit_s": 1}}).json()
    assert again["options"]["objective"] == "decode"
    by_flow = api.post(address, {"options": {"time_limit_s": 1, "objective": "flow"}}).json()
    assert by_flow["options"]["objective"] == "flow"


def test_a_model_with_other_layers_needs_a_new_plan(plan: Plan, api: APIClient) -> None:
    LanguageModel.objects.update(num_layers=5)
    refused = answered(api.post(f"/api/v1/plans/{plan.pk}/replan/", {}), 400)
    assert "places 4 layers but model 'tiny-llama' has 5 now" in refused.json()["detail"]
