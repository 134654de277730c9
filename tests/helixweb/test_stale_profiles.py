"""Profiles that were measured under other conditions than their nodes have now."""

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from rest_framework.test import APIClient

from helixweb.deployment.models import Profiling
from helixweb.inventory.models import LanguageModel, Node, Origin, Profile
from helixweb.inventory.stale_profiles import stale_profiles
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


def test_another_memory_budget_makes_a_profile_stale_until_it_is_measured_again(
    measured: Measured, browser: Client
) -> None:
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


def test_the_page_of_a_plan_names_stale_profiles_of_its_nodes(
    measured: Measured, browser: Client, plan: Any
) -> None:
    name = sorted(plan.document["placement"])[0]
    measure(measured, name)
    address = reverse("plan-run", args=[plan.run_id])
    assert browser.get(address).context["stale_profiles"] == []
    offer(name, 12_000_000)
    (stale,) = browser.get(address).context["stale_profiles"]
    assert stale.node.name == name


def test_a_profile_measured_on_other_hardware_is_assigned_after_confirmation(
    measured: Measured, browser: Client
) -> None:
    name = measure(measured, "tower").profile_name
    other = offer("mini", 100)
    assert other.profile_name != name
    address = reverse("node-edit", args=[other.cluster_id, other.pk])
    values = {"name": "mini", "region": other.region, "profile_name": name}
    refused = browser.post(address, values)
    assert "tower" in refused.context["form"].errors["confirm_profile"][0]
    assert Node.unscoped.get(name="mini").profile_name != name
    browser.post(address, {**values, "confirm_profile": "on"})
    assert Node.unscoped.get(name="mini").profile_name == name


@pytest.mark.parametrize(
    "hardware",
    [
        {"gpus": [{"name": "Tesla T4", "memory_bytes": 16_000_000_000}]},
        {"relative_speed": 0.25},
    ],
)
def test_as_much_memory_on_another_machine_does_not_make_its_profile_fit(
    measured: Measured, browser: Client, hardware: dict[str, Any]
) -> None:
    source = measure(measured, "tower")
    other = offer("mini", 9_000_000)
    other.hardware = {**(source.hardware or {}), **hardware}
    other.save()
    before = other.profile_name
    address = reverse("node-edit", args=[other.cluster_id, other.pk])
    values = {"name": "mini", "region": other.region, "profile_name": source.profile_name}
    refused = browser.post(address, values)
    assert "tower" in refused.context["form"].errors["confirm_profile"][0]
    assert Node.unscoped.get(name="mini").profile_name == before
    Node.unscoped.filter(name="mini").update(hardware=source.hardware)
    browser.post(address, values)
    assert Node.unscoped.get(name="mini").profile_name == source.profile_name


def test_many_nodes_get_such_a_profile_only_by_an_action_of_its_own(
    measured: Measured, browser: Client
) -> None:
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
