"""Profiles that were measured under other conditions than their nodes have now, and plans that are
older than measurements of their cluster."""

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from rest_framework.test import APIClient

from helixweb.common import jobs
from helixweb.deployment.models import Profiling
from helixweb.inventory.models import Cluster, LanguageModel, Node, Origin, Profile
from helixweb.inventory.services import measured_links, records
from helixweb.inventory.stale_profiles import stale_profiles
from helixweb.planning.models import Plan, PlanRun
from helixweb.planning.newer_measurements import NewerMeasurements, newer_measurements
from helixweb.planning.services import starting
from planner.domain.placement import LayerRange
from planner.domain.rules import PlacementRules
from planner.plan_options import PlanOptions
from planner.serialization import problem_from_dict
from runtime.checkpoints.engine_fit import offers_of
from runtime.protocol.engines import EngineSettings
from tests.helixweb.looking import contains, denied, shows
from tests.helixweb.test_profiling import FOUND, Measured


def offer(name: str, budget_bytes: int) -> Node:
    node = Node.unscoped.get(name=name)
    node.hardware = {**(node.hardware or {}), "memory_budget_bytes": budget_bytes}
    node.save()
    return node


def measure(there: Measured, name: str, dtype: str = "bfloat16", engine: str = "") -> Node:
    """As its agent would with the budget that it offers, 9 MB."""
    node = offer(name, 9_000_000)
    model = there.cluster.model
    found = FOUND.model_copy(
        update={
            "checkpoint": model.checkpoint,
            "dtype": dtype,
            "engine": engine,
            "bytes_per_layer": model.bytes_per_layer,
        }
    )
    there.measure(name, found)
    return Node.unscoped.get(pk=node.pk)


def reasons(name: str) -> tuple[str, ...]:
    node = Node.unscoped.get(name=name)
    return tuple(why for one in stale_profiles([node]).get(node.pk, ()) for why in one.reasons)


def test_another_memory_budget_makes_a_profile_stale(measured: Measured, browser: Client) -> None:
    measure(measured, "tower")
    assert reasons("tower") == ()
    node = offer("tower", 12_000_000)
    (why,) = reasons("tower")
    contains(why, "9 MB", "12 MB")
    shows(browser.get(reverse("node", args=[node.cluster_id, node.pk])), why)
    rows = browser.get("/nodes/").context["rows"]
    assert [row.node.name for row in rows if row.is_stale] == ["tower"]
    model = measured.cluster.model.pk
    browser.post(reverse("node-measure", args=[node.cluster_id, node.pk]), {"model": model})
    order = Profiling.unscoped.filter(node=node).latest("pk")
    assert order.is_open
    assert order.model_id == model
    measured.end(order.pk, "tower", FOUND.model_copy(update={"vram_bytes": 12e6}))
    assert reasons("tower") == ()


def test_a_profile_of_another_engine_is_stale_until_one_runs_on_it(measured: Measured) -> None:
    measured.cluster.model.architecture = "gemma3_text"
    measured.cluster.model.save()
    node = measure(measured, "tower", engine="helix")
    with_vllm = offers_of(EngineSettings(python="/python"))
    for offers, told in ((with_vllm, 1), (offers_of(EngineSettings()), 0)):
        engines = [offer.model_dump(mode="json") for offer in offers]
        node.hardware = {**(node.hardware or {}), "engines": engines, "engine": "auto"}
        node.save()
        assert len(reasons("tower")) == told
        assert all("engine helix" in why for why in reasons("tower"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"checkpoint": "/models/other"}, ("/models/tiny-llama", "/models/other")),
        ({"bytes_per_layer": 2.0}, ("bfloat16", "2 B")),
    ],
)
def test_another_checkpoint_or_data_type_makes_a_profile_stale(
    measured: Measured, changes: dict[str, Any], words: tuple[str, ...]
) -> None:
    measure(measured, "tower")
    LanguageModel.objects.filter(pk=measured.cluster.model.pk).update(**changes)
    (why,) = reasons("tower")
    assert all(word in why for word in words)


def test_another_data_type_of_one_size_makes_measurements_stale(measured: Measured) -> None:
    measure(measured, "tower")
    measure(measured, "mini", dtype="float16")
    (why,) = reasons("tower")
    contains(why, "bfloat16", "float16")
    assert reasons("mini") == ()


def test_estimates_and_imported_profiles_are_never_stale(measured: Measured) -> None:
    offer("tower", 1)
    assert Profile.unscoped.get(name="big").origin != Origin.MEASURED
    assert reasons("tower") == ()


def test_a_plans_page_names_stale_profiles(measured: Measured, browser: Client, plan: Any) -> None:
    name = sorted(plan.document["placement"])[0]
    measure(measured, name)
    address = reverse("plan-run", args=[plan.run_id])
    assert browser.get(address).context["stale_profiles"] == []
    offer(name, 12_000_000)
    (stale,) = browser.get(address).context["stale_profiles"]
    assert stale.node.name == name


@pytest.mark.parametrize(
    "hardware",
    [
        {"memory_budget_bytes": 100},
        {"gpus": [{"name": "Tesla T4", "memory_bytes": 16_000_000_000}]},
        {"relative_speed": 0.25},
    ],
)
def test_a_profile_measured_on_other_hardware_is_assigned_after_confirmation(
    measured: Measured, browser: Client, hardware: dict[str, Any]
) -> None:
    source = measure(measured, "tower")
    mini = Node.unscoped.filter(name="mini")
    mini.update(hardware={**(source.hardware or {}), **hardware})
    other = mini.get()
    address = reverse("node-edit", args=[other.cluster_id, other.pk])
    values = {"name": "mini", "region": other.region, "profile_name": source.profile_name}
    refused = browser.post(address, values)
    assert "tower" in refused.context["form"].errors["confirm_profile"][0]
    assert mini.get().profile_name == other.profile_name != source.profile_name
    browser.post(address, {**values, "confirm_profile": "on"})
    assert mini.get().profile_name == source.profile_name
    mini.update(hardware=source.hardware, profile_name=other.profile_name)
    browser.post(address, values)
    assert mini.get().profile_name == source.profile_name, "none is asked for on like hardware"


def test_many_nodes_need_an_explicit_action(measured: Measured, browser: Client) -> None:
    name = measure(measured, "tower").profile_name
    other = offer("mini", 100)
    asked = {"node": [other.pk], "word": name}
    browser.post(reverse("nodes-bulk"), {**asked, "action": "profile"})
    assert Node.unscoped.get(name="mini").profile_name != name
    browser.post(reverse("nodes-bulk"), {**asked, "action": "profile-anyway"})
    assert Node.unscoped.get(name="mini").profile_name == name


def test_programs_confirm_such_a_profile(measured: Measured, api: APIClient) -> None:
    name = measure(measured, "tower").profile_name
    other = offer("mini", 100)
    before = other.profile_name
    one, many = f"/api/v1/nodes/{other.pk}/", "/api/v1/nodes/bulk/"
    wanted = {"profile_name": name}
    for refused in (api.patch(one, wanted), api.post(many, {"nodes": [other.pk], **wanted})):
        denied(refused, 409, "tower", "confirm_profile")
    assert Node.unscoped.get(name="mini").profile_name == before
    confirmed = {**wanted, "confirm_profile": True}
    assert api.patch(one, confirmed).json()["profile_name"] == name
    assert api.patch(one, wanted).status_code == 200, "it has the profile already"
    Node.unscoped.filter(name="mini").update(profile_name=before)
    assert api.post(many, {"nodes": [other.pk], **confirmed}).json() == {"changed": 1}


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


def test_an_old_plan_is_computed_again(measured: Measured, browser: Client, plan: Plan) -> None:
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
def test_an_adopted_answer_has_the_age_of_its_run(plan: Plan, user: Any, cluster: Cluster) -> None:
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


def test_a_what_if_is_not_computed_again(browser: Client, plan: Plan, cluster: Cluster) -> None:
    PlanRun.unscoped.filter(plan=plan).update(what_if="without mini")
    measure_link(cluster)
    assert shown(browser, plan) == [None, None]
    browser.post(reverse("plan-run-again", args=[plan.run_id]))
    assert PlanRun.unscoped.count() == 1


def test_why_no_plan_is_computed_is_shown(browser: Client, plan: Plan, cluster: Cluster) -> None:
    records.delete(cluster.nodes.get(name="tower"))
    records.delete(cluster.nodes.get(name="laptop"))
    answer = browser.post(reverse("plan-run-again", args=[plan.run_id]), follow=True)
    assert answer.redirect_chain[-1][0] == reverse("plan-run", args=[plan.run_id])
    assert "can hold 2 layers" in answer.content.decode()
    assert PlanRun.unscoped.count() == 1
