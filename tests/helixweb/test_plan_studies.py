"""What is worked out of a plan after its run: what its simulations forecast, what limits it, what
survives a loss and what more would bring."""

import re
from dataclasses import replace
from typing import Any

import pytest
from django.test import Client
from django.utils.translation import override
from rest_framework.test import APIClient

from helixweb.charts.chart import tokens_per_s
from helixweb.common import jobs
from helixweb.common.models import Event
from helixweb.inventory.models import Cluster
from helixweb.planning import incumbents
from helixweb.planning.models import Explanation, Plan, PlanRun, Simulation
from helixweb.planning.options import SimulationRequest
from helixweb.planning.services import studies
from helixweb.planning.stored import stored_plan, stored_problem
from planner import Workload
from planner.explanation import marginal_values
from planner.plan_options import PlanOptions
from planner.robust import survival
from planner.serialization import plan_from_dict, problem_from_dict
from planner.workload.request import InvalidWorkload
from tests.helixweb.looking import answered, contains, denied, fresh, shows
from tests.helixweb.searching import begun, claimed, end_with, found_for, searched

# A lease writes from a thread of its own: a test's transaction would be in its way.
pytestmark = pytest.mark.django_db(transaction=True)


def ask(plan: Plan, user: Any, **changed: Any) -> Simulation:
    asked = {"workload": "backlog", "share": None, "burst_size": None, "policy": "runtime"}
    request = SimulationRequest(**{**asked, "seed": 0, **changed})
    return studies.start_simulation(plan, request, user=user)


def simulated(row: Simulation) -> Simulation:
    jobs.attempt_job(row)
    row.refresh_from_db()
    return row


def test_arrivals_come_at_the_share_of_what_a_backlog_reaches(plan: Plan, user: Any) -> None:
    peak = studies.forecast_from_json(simulated(ask(plan, user)).forecast or {})
    row = simulated(ask(plan, user, workload="poisson", share=0.5))
    peak_tokens_per_s = peak.decode_tokens_per_s + peak.prompt_tokens_per_s
    assert row.requests_per_s == pytest.approx(0.5 * peak_tokens_per_s / (64 + 32))
    found = studies.forecast_from_json(row.forecast or {})
    assert found.decode_tokens_per_s == pytest.approx(0.5 * peak.decode_tokens_per_s, rel=0.15)


def test_short_requests_are_simulated_by_their_number_and_long_ones_by_time(plan: Plan) -> None:
    """The window is shown with the figures; thousands of requests say as much as ten minutes."""

    def window_s(*, tokens: float, share: float = 1.0) -> float:
        workload = Workload(mean_prompt_tokens=2 * tokens, mean_output_tokens=tokens)
        problem = replace(stored_problem(plan), workload=workload)
        policy = studies.POLICIES["runtime"]
        return studies.window_of(problem, stored_plan(plan), policy=policy, share=share)

    longest = studies.MOST_WINDOW_S
    assert window_s(tokens=2) < window_s(tokens=2, share=0.5) <= longest
    assert window_s(tokens=2) < window_s(tokens=4) <= longest
    assert window_s(tokens=640) == longest


def test_bursts_wait_longer_than_single_arrivals(plan: Plan, user: Any) -> None:
    single = simulated(ask(plan, user, workload="poisson", share=0.5))
    bursts = simulated(ask(plan, user, workload="bursts", share=0.5, burst_size=20))
    assert (
        studies.forecast_from_json(bursts.forecast or {}).ttft.p50_s
        > studies.forecast_from_json(single.forecast or {}).ttft.p50_s
    )


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"workload": "poisson"}, "requests that arrive need one"),
        ({"workload": "poisson", "share": 3.0}, ""),
        ({"share": 0.5}, ""),
        ({"workload": "bursts", "share": 0.5}, ""),
        ({"burst_size": 5, "workload": "backlog"}, ""),
    ],
)
def test_a_workload_that_lacks_something_is_refused(
    browser: Client, plan: Plan, user: Any, changed: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidWorkload):
        ask(plan, user, **changed)
    if words:
        form = {"share": "", "policy": "runtime", "seed": "0", **changed}
        answer = browser.post(f"/plans/by-id/{plan.pk}/simulations", form, follow=True)
        assert words in answer.content.decode()


def test_what_cannot_be_served_fails_in_the_simulators_words(plan: Plan, user: Any) -> None:
    plan.problem["workload"]["mean_prompt_tokens"] = 1e6
    plan.save()
    row = simulated(ask(plan, user))
    assert row.status == "failed"
    assert "no room on any route" in row.error


def test_the_plans_page_shows_the_forecast_and_more(browser: Client, plan: Plan, user: Any) -> None:
    simulated(plan.simulations.get())
    path = f"/plans/{plan.run_id}/"
    shown = browser.get(path).content.decode()
    contains(shown, "estimated timings", "may exceed the tokens/s of the max flow")
    forecast = plan.simulations.get().forecast
    assert forecast is not None
    headline = re.search(
        r'<div class="tiles" id="headline"[^>]*>.*?<div class="value">([\d,.]+)<', shown, re.S
    )
    assert headline[1] == tokens_per_s(forecast["decode_tokens_per_s"])
    assert "by one forecast" in shown
    simulated(ask(plan, user, seed=7))
    assert "by 2 forecasts" in browser.get(path).content.decode()
    for chart in ("simulated-busy", "simulated-kv", "simulated-links"):
        assert f'id="{chart}"' in shown
    form = {"workload": "bursts", "share": "50", "burst_size": "4", "seed": "5"}
    answer = browser.post(f"/plans/by-id/{plan.pk}/simulations", {**form, "policy": "published"})
    assert answer.headers["Location"] == f"{path}#forecast"
    row = Simulation.unscoped.latest("pk")
    assert (row.workload, row.share, row.burst_size) == ("bursts", 0.5, 4)
    assert (row.policy, row.seed) == ("published", 5)
    assert "Progress of simulation" in browser.get(path).content.decode()
    simulated(row)
    both = browser.get(f"/plans/by-id/{plan.pk}/simulations").content.decode()
    contains(both, "offline, requests always wait", "50% of the peak in bursts of 4")


def test_simulations_over_rest(api: APIClient, plan: Plan) -> None:
    asked = {"plan": plan.pk, "workload": "poisson", "share": 0.5, "seed": 2}
    answer = answered(api.post("/api/v1/simulations/", asked, format="json"), 202)
    jobs.attempt_job(Simulation.unscoped.get(pk=answer.data["id"]))
    found = api.get(answer.headers["Location"]).data
    assert found["status"] == "succeeded"
    assert found["forecast"]["decode_tokens_per_s"] > 0
    assert api.get("/api/v1/simulations/", {"plan": plan.pk}).data["count"] == 2
    assert api.post(f"/api/v1/simulations/{found['id']}/cancel/").status_code == 409
    refused = api.post("/api/v1/simulations/", {"plan": plan.pk, "share": 0.5}, format="json")
    assert refused.status_code == 400


def test_a_run_for_decoding_shows_its_unit(browser: Client, cluster: Cluster, user: Any) -> None:
    run = begun(cluster, user, PlanOptions(time_limit_s=1))
    lease = claimed(run)
    found = found_for(run, lease)
    solving = browser.get(f"/plans/{run.pk}/").content.decode()
    assert "decode tokens/s, estimated" in " ".join(solving.split())
    best = incumbents.best_incumbent(run.pk)
    assert best.objective_value == PlanRun.unscoped.get().objective_value
    end_with(run, lease, found)
    assert fresh(run).objective_value == found.forecast.value
    shows(browser.get(f"/plans/{run.pk}/"), "Searched for: decode throughput", "Max flow")


Status = Explanation.Status
OPTIONS = PlanOptions(objective="flow", time_limit_s=5)


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
    plan = searched(begun(cluster, user, options))
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
