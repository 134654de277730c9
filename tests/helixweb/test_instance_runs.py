"""Runs that plan whole-model instances, and what their plans are expected to write."""

from dataclasses import replace
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from rest_framework.test import APIClient

from helixweb.inventory.models import Cluster, LanguageModel
from helixweb.planning.expected import output_forecast
from helixweb.planning.models import Plan, PlanRun, Simulation
from helixweb.planning.services.solving import search_for
from helixweb.planning.services.studies import forecast_to_json
from helixweb.planning.stored import stored_plan
from planner.domain.instance import PlanMethod
from planner.placers.base import NeverCancelled
from tests.helixweb.instance_doubles import Instances, refused
from tests.helixweb.looking import answered, contains
from tests.helixweb.searching import SEARCH, claimed, end_with
from tests.helixweb.simulated_forecast import FORECAST

pytestmark = pytest.mark.usefixtures("time_stands_still")


def searched() -> Plan:
    """The newest run's plan, by its own search."""
    run = PlanRun.unscoped.latest("pk")
    lease = claimed(run)
    plan, _ = search_for(run, progress=lambda _: None, cancel=NeverCancelled())
    return end_with(run, lease, plan)


def test_a_run_by_instances_is_asked_for(api: APIClient, browser: Client, two: Instances) -> None:
    model = two.model
    body = {
        "cluster": two.cluster.pk,
        "model": model.pk,
        "options": {"method": "instances", "backend": "vllm", "time_limit_s": 1},
    }
    answer = answered(api.post("/api/v1/plan-runs/", body, format="json"), 202)
    shown = answer.json()["options"]
    assert (shown["method"], shown["backend"], shown["tensor_parallel"]) == (
        "instances",
        "vllm",
        None,
    )
    plan = searched()
    assert {one["backend"] for one in plan.document["instances"]} == {"vllm"}
    page = browser.get(reverse("plan-run", args=[plan.run_id])).content.decode()
    assert "Instances of this plan" in page
    assert "Searched for the flow" not in page
    assert "Algorithm 1" in page


@pytest.mark.parametrize(
    "path", ["/api/v1/plan-runs/", "/api/v1/plans/{plan}/replan/", "/api/v1/plans/{plan}/what-if/"]
)
def test_gpus_are_of_instances_alone(api: APIClient, two: Instances, path: str) -> None:
    body: dict[str, Any] = {"options": {"tensor_parallel": 2}}
    if "{plan}" not in path:
        body |= {"cluster": two.cluster.pk, "model": two.model.pk}
    before = PlanRun.unscoped.count()
    answer = answered(api.post(path.format(plan=two.plan.pk), body, format="json"), 400)
    (error,) = answer.json()["errors"]
    assert error["field"] == "options.tensor_parallel"
    said = error["message"]
    contains(said, "2 GPUs", "'instances' or 'mixed'")
    assert PlanRun.unscoped.count() == before


def test_the_form_refuses_gpus_of_instances_for_pipelines(browser: Client, two: Instances) -> None:
    row = {"cluster": two.cluster.pk, "model": two.model.pk, "objective": "decode"}
    form = {**SEARCH, **row, "method": "pipelines", "tensor_parallel": "2"}
    before = PlanRun.unscoped.count()
    answer = answered(browser.post("/plans/new", form), 422)
    assert list(answer.context["form"].errors) == ["tensor_parallel"]
    assert PlanRun.unscoped.count() == before
    assert browser.post("/plans/new", form | {"tensor_parallel": ""}).status_code == 302
    answer = browser.post("/plans/new", form | {"method": "instances", "tensor_parallel": "3"})
    assert answer.status_code == 422
    assert "degree of 3 does not divide the 1 GPUs" in answer.content.decode()


def test_a_model_that_no_machine_holds_queues_no_run(api: APIClient, cluster: Cluster) -> None:
    model = LanguageModel.objects.get()
    body = {"cluster": cluster.pk, "model": model.pk, "options": {"method": "instances"}}
    answer = api.post("/api/v1/plan-runs/", body, format="json")
    refused(answer, "no machine holds all 4 layers")
    assert not PlanRun.unscoped.exists()


@pytest.mark.parametrize(("method", "whole"), [("instances", 2), ("mixed", 1)])
def test_what_is_measured_of_instances_is_held_against_what_was_predicted_of_them(
    browser: Client, cluster: Cluster, user: Any, method: PlanMethod, whole: int
) -> None:
    row = Instances(cluster, user, whole=whole, method=method).plan
    Simulation.objects.create(
        plan=row, status=Simulation.Status.SUCCEEDED, forecast=forecast_to_json(FORECAST)
    )
    plan = stored_plan(row)
    choice = plan.method_choice
    assert plan.instances
    predicted = {one.method: one.output_tokens_per_s for one in choice.candidates}
    assert output_forecast(row, plan) == pytest.approx(predicted[choice.chosen])
    page = browser.get(f"/plans/by-id/{row.pk}/simulations").content.decode()
    names = ", ".join(sorted({one.node for one in plan.instances}))
    assert f"The instances of {names} are simulated as stages that hold all layers" in page


def test_of_pipelines_without_a_forecast_nothing_is_expected(cluster: Cluster, user: Any) -> None:
    row = Instances(cluster, user, whole=2, method="instances").plan
    plan = stored_plan(row)
    first, _ = plan.instances
    beside = replace(plan, instances=(first,), method_choice=None)  # the other one holds a stage
    assert output_forecast(row, beside) is None
    alone = replace(plan, method_choice=None)
    assert output_forecast(row, alone) == sum(one.output_tokens_per_s for one in plan.instances)
