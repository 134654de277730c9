"""What limits a plan, what survives a loss and what more would bring: worked out after the run."""

from typing import Any

import pytest
from django.test import Client
from django.utils.translation import override
from rest_framework.test import APIClient

from helixweb.common import jobs
from helixweb.common.models import Event
from helixweb.inventory.models import Cluster
from helixweb.planning.models import Explanation, Plan
from planner.explanation import marginal_values
from planner.plan_options import PlanOptions
from planner.robust import survival
from planner.serialization import plan_from_dict, problem_from_dict
from tests.helixweb.looking import contains, denied
from tests.helixweb.searching import begun

Status = Explanation.Status
OPTIONS = PlanOptions(objective="flow", time_limit_s=5)
pytestmark = pytest.mark.django_db(transaction=True)


def planned(cluster: Cluster, user: Any, options: PlanOptions) -> Plan:
    run = begun(cluster, user, options)
    jobs.attempt_job(run)
    return Plan.unscoped.get(run=run)


@pytest.fixture
def plan(cluster: Cluster, user: Any) -> Plan:
    return planned(cluster, user, OPTIONS)


def explained(plan: Plan) -> Explanation:
    jobs.attempt_job(Explanation.unscoped.get(plan=plan))
    return Explanation.unscoped.get(plan=plan)


@pytest.mark.parametrize(
    ("options", "unit"),
    [(OPTIONS, "(tokens/s), exact"), (PlanOptions(time_limit_s=2), "(decode tokens/s), estimated")],
    ids=["flow", "decode"],
)
def test_a_plan_is_explained_by_its_objective_as_the_planner_does(
    cluster: Cluster, user: Any, browser: Client, options: PlanOptions, unit: str
) -> None:
    plan = planned(cluster, user, options)
    assert plan.explanation.status == Status.QUEUED
    assert "working it out" in browser.get(f"/plans/{plan.run_id}/").content.decode()
    found = explained(plan)
    assert (found.status, found.error) == (Status.SUCCEEDED, "")
    problem = problem_from_dict(plan.problem)
    placement = plan_from_dict(plan.document).placement
    left = survival(problem, placement, options=options)
    assert (found.survival_tokens_per_s, found.worst_node) == (
        left.value,
        left.worst_node,
    )
    assert found.objective == options.objective
    by_planner = marginal_values(problem, placement, options=options)
    assert [(value["resource"], value["gain"]) for value in found.values] == [
        (value.resource, pytest.approx(value.gain)) for value in by_planner
    ]
    assert found.sentences[0].startswith("The flow of ")
    with override("zh-hans"):
        assert all("flow of" not in said and "compute of" not in said for said in found.sentences)
    page = browser.get(f"/plans/by-id/{plan.pk}/explanation").content.decode()
    assert page.lstrip().startswith("<section")
    assert all(value["resource"] in page for value in found.values)
    contains(page, "of 3 kinds of node", unit)
    assert str(found.survival) in page
    events = Event.objects.filter(topic=plan.run.topic, type="explanation").order_by("pk")
    assert [event.data for event in events] == [
        {"plan": plan.pk, "status": status} for status in ("running", "succeeded")
    ]


def test_a_search_for_each_kind_finds_what_kept_layers_give(plan: Plan, browser: Client) -> None:
    explained(plan)
    before = Explanation.unscoped.get(plan=plan)
    browser.post(f"/plans/by-id/{plan.pk}/explanation", {"search_s": "0.2"})
    asked = Explanation.unscoped.get(plan=plan)
    assert (asked.status, asked.values) == (Status.QUEUED, before.values)
    assert asked.pk != before.pk
    found = explained(plan)
    searched = [value for value in found.values if value["resource"].startswith("+1 ")]
    assert searched
    for value in searched:
        assert value["gain"] >= value["kept_tokens_per_s"] / value["before_tokens_per_s"] - 1 - 1e-9
        assert value["replanned_tokens_per_s"] is not None


def test_rest_explains_too(plan: Plan, api: APIClient) -> None:
    address = f"/api/v1/plans/{plan.pk}/explanation/"
    assert api.get(address).json()["status"] == "queued"
    assert api.post(address, {}).status_code == 409
    explained(plan)
    shown = api.get(address).json()
    assert shown["status"] == "succeeded"
    assert {"resource", "gain", "kept_tokens_per_s"} <= set(shown["values"][0])
    assert api.post(address, {"search": 1}).status_code == 400
    asked = api.post(address, {"search_s": 0.5})
    assert (asked.status_code, asked.json()["search_s"]) == (202, 0.5)
    Explanation.unscoped.all().delete()
    denied(api.get(address), 404, "never explained; POST")
