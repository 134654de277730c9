"""Several models planned on one cluster at once."""

from typing import Any

import pytest
from django.test import Client
from rest_framework.test import APIClient

from helixweb.command_line import exit_codes
from helixweb.common import jobs
from helixweb.inventory.models import Cluster, LanguageModel, Node, Profile
from helixweb.planning.models import ModelMix, Plan, PlanRun
from helixweb.planning.options import options_from_json
from planner.domain.rules import PlacementRules
from planner.feasibility import check_rules
from planner.serialization import problem_from_dict
from tests.helixweb.looking import answered, denied, fresh, shows
from tests.helixweb.searching import SEARCH
from tests.helixweb.site_in_process import Shell

MIXES = "/api/v1/model-mixes/"
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def models(cluster: Cluster) -> list[LanguageModel]:
    """Two models that six nodes of the cluster can serve."""
    first = LanguageModel.objects.get()
    second = LanguageModel.objects.create(
        name="second-llama",
        num_layers=3,
        activation_bytes_per_token=256,
        bytes_per_layer=1e6,
    )
    for profile in Profile.unscoped.filter(model=first):
        profile.pk = None
        profile.model = second
        profile.save()
    for number in range(3):
        Node.objects.create(
            cluster=cluster, name=f"tower-{number}", region="home", profile_name="big"
        )
    return [first, second]


@pytest.fixture
def body(cluster: Cluster, models: list[LanguageModel]) -> dict[str, Any]:
    return {
        "cluster": cluster.pk,
        "models": [{"model": models[0].pk}, {"model": models[1].pk, "weight": 2}],
        "options": {"time_limit_s": 2},
    }


def planned(mix: ModelMix) -> ModelMix:
    jobs.attempt_job(mix)
    assert (fresh(mix).status, mix.error) == ("succeeded", "")
    return mix


@pytest.mark.parametrize("objective", ["decode", "flow"])
def test_every_model_gets_a_plan_and_no_two_use_a_node(
    api: APIClient,
    browser: Client,
    body: dict[str, Any],
    models: list[LanguageModel],
    objective: str,
) -> None:
    options = body["options"] | ({} if objective == "decode" else {"objective": objective})
    answer = answered(api.post(MIXES, body | {"options": options}), 202)
    planned(ModelMix.unscoped.get(pk=answer.json()["id"]))
    shown = api.get(answer.headers["Location"]).json()
    runs = [PlanRun.unscoped.get(pk=pk) for pk in shown["runs"]]
    assert [run.model for run in runs] == models
    first, second = (set(run.plan.document["placement"]) for run in runs)
    assert first
    assert second
    assert not first & second
    is_flow = objective == "flow"
    served = [run.flow_tokens_per_s if is_flow else run.objective_value for run in runs]
    weights = [row["weight"] for row in shown["models"]]
    levels = [value / weight for value, weight in zip(served, weights, strict=True)]
    assert min(levels) == pytest.approx(shown["level_tokens_per_s"])
    bound = shown["level_bound_tokens_per_s"]
    assert (bound is not None) == is_flow
    assert bound is None or min(levels) <= bound * (1 + 1e-6)
    page = browser.get(f"/plans/mixes/{shown['id']}/").content.decode()
    assert ("decode tokens/s, estimated" in page) != is_flow
    assert ("no mix can exceed it" in page) == is_flow
    for run, others in zip(runs, (second, first), strict=True):
        stored = options_from_json(run.options)
        assert stored.objective == objective
        assert stored.rules == PlacementRules(excluded_nodes=frozenset(others))
        check_rules(problem_from_dict(run.problem), stored.rules)
        assert run.plan.explanation.status == "queued"


def test_the_page_starts_a_mix_and_shows_its_plans(
    browser: Client, cluster: Cluster, models: list[LanguageModel]
) -> None:
    address = f"/plans/mixes/new/{cluster.pk}"
    assert "second-llama" in browser.get(address).content.decode()
    form = {**SEARCH, f"weight-{models[0].pk}": "1", f"weight-{models[1].pk}": ""}
    denied(browser.post(address, form), 422, "1 models are no mix; choose 2 or more")
    answer = browser.post(address, {**form, f"weight-{models[1].pk}": "0.5"})
    mix = ModelMix.unscoped.get()
    assert answer.headers["Location"] == f"/plans/mixes/{mix.pk}/"
    shows(browser.get(f"/plans/mixes/{mix.pk}/"), f'data-topics="model-mix:{mix.pk}"')
    planned(mix)
    page = browser.get(f"/plans/mixes/{mix.pk}/").content.decode()
    for run in mix.runs.all():
        assert f'href="/plans/{run.pk}/"' in page
        assert f"mix {mix.pk}" in browser.get(f"/plans/{run.pk}/").content.decode()
    browser.post(f"/plans/mixes/{mix.pk}/cancel")
    assert b"had ended already" in browser.get(f"/plans/mixes/{mix.pk}/").content


def test_the_command_plans_several_models_together(
    shell: Shell, models: list[LanguageModel]
) -> None:
    first, second = (model.name for model in models)
    shell.sleep = lambda _: jobs.attempt_job(ModelMix.unscoped.get())
    words = ("--model", f"{first}=2", "--model", second, "--time-limit", 2)
    assert shell("plan", "mix", *words) == 0, shell.err
    weights = {share.model.name: share.weight for share in ModelMix.unscoped.get().shares.all()}
    assert weights == {first: 2, second: 1}
    plans = {plan.model.name: plan.pk for plan in Plan.unscoped.order_by("pk")}
    assert [line.split()[:3:2] for line in shell.out.splitlines()[-2:]] == [
        [name, str(plans[name])] for name in (first, second)
    ]
    assert shell("plan", "mix", "--model", f"{first}=much") == exit_codes.USAGE
    assert "'much'" in shell.err


def test_a_cluster_with_one_model_says_what_a_mix_needs(browser: Client, cluster: Cluster) -> None:
    page = browser.get(f"/plans/mixes/new/{cluster.pk}").content.decode()
    assert "has profiles for 1 model; a mix needs two or more" in page


def test_what_cannot_be_is_refused_in_words(
    api: APIClient, body: dict[str, Any], models: list[LanguageModel]
) -> None:
    pins = {"rules": {"pinned": {"tower": {"first": 0, "end": 1}}}}
    twice = [{"model": models[0].pk}, {"model": models[0].pk}]
    cases: list[tuple[dict[str, Any], str]] = [
        ({"models": twice}, "tiny-llama is named twice"),
        ({"models": twice[:1]}, "choose 2 or more"),
        ({"models": [{"model": models[0].pk}, {"model": models[1].pk, "weight": 0}]}, "above 0"),
        ({"options": {"objective": "cost"}}, "not a valid choice"),
        ({"options": pins}, "pins work for one model only"),
        ({"options": {"rules": {"excluded_nodes": ["nobody"]}}}, "'nobody'"),
        ({"weights": [1, 2]}, "Unknown field"),
    ]
    for change, says in cases:
        denied(api.post(MIXES, {**body, **change}), 400, says)
    assert not ModelMix.unscoped.exists()


def test_models_too_large_fail(api: APIClient, body: dict[str, Any], cluster: Cluster) -> None:
    cluster.nodes.filter(name__startswith="tower-").delete()
    cluster.links.all().delete()
    LanguageModel.objects.update(num_layers=4)  # seven layers fit, eight do not
    answered(api.post(MIXES, body), 202)
    jobs.attempt_job(ModelMix.unscoped.get())
    mix = ModelMix.unscoped.get()
    assert mix.status == "failed"
    assert mix.error
    assert not PlanRun.unscoped.exists()


def test_a_queued_mix_is_cancelled_at_once(api: APIClient, body: dict[str, Any]) -> None:
    mix = api.post(MIXES, body).json()["id"]
    assert api.post(f"{MIXES}{mix}/cancel/").json()["status"] == "cancelled"
    jobs.attempt_job(ModelMix.unscoped.get())
    assert not PlanRun.unscoped.exists()
    assert api.post(f"{MIXES}{mix}/cancel/").status_code == 409
