"""Pages and REST count the embedding and the output head where they are, and only there; charts and
files of profiles."""

import json
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from helixweb.inventory.as_code.importing import import_problem
from helixweb.inventory.models import Cluster, LanguageModel, Profile
from helixweb.inventory.services import profile_versions
from helixweb.inventory.views.profiles import profile_speed, profiles_memory
from planner.serialization import problem_from_dict
from tests.helixweb.looking import contains

ENDS = {
    "first": {"max_layers": 2, "kv_token_layers_less": 500.0},
    "last": {"max_layers": 1, "kv_token_layers_less": 600.0},
    "both": {"max_layers": 0, "kv_token_layers_less": 0.0},
    "kv_minimum": {"requests": 8, "tokens": 96},
    "reserve_bytes": 0.0,
}


@pytest.fixture
def tight(user: Any, tiny_problem: dict[str, Any]) -> Cluster:
    """The tiny problem; `big` holds three layers, but two with the first and one with the last."""
    tiny_problem["compute_profiles"]["big"]["memory"] = ENDS
    tiny_problem["compute_profiles"]["small"]["memory"] = {
        **ENDS,
        "first": {"max_layers": 1},
        "last": {"max_layers": 1},
    }
    return import_problem(problem_from_dict(tiny_problem))


def test_the_preview_counts_what_the_models_ends_take(browser: Client, tight: Cluster) -> None:
    model = LanguageModel.objects.get()
    page = browser.get(f"/plans/new/fit?cluster={tight.pk}&model={model.pk}").content.decode()
    assert "can hold 5 layers; tiny-llama has 4" in page
    assert "2 layers fewer than the nodes hold in the middle of the model" in page
    assert "fits 1.3 times" in browser.get(reverse("model", args=[model.pk])).content.decode()


def test_what_does_not_fit_beside_the_ends_is_refused(browser: Client, tight: Cluster) -> None:
    tight.links.all().delete()
    tight.nodes.filter(name="mini").delete()
    model = LanguageModel.objects.get()
    page = browser.get(f"/plans/new/fit?cluster={tight.pk}&model={model.pk}").content.decode()
    contains(page, "does not fit", "can hold 3 layers; tiny-llama has 4")


def test_a_profiles_page_shows_its_ends_and_kv_minimum(browser: Client, tight: Cluster) -> None:
    profile = tight.profiles.get(name="big")
    page = browser.get(reverse("profile", args=[profile.pk])).content.decode()
    contains(page, "(2 with the first layer, 1 with the last)", "8 requests of 96 tokens")


@pytest.mark.parametrize("clusters", [["one"], ["one", "two"]])
def test_profiles_of_one_name_in_several_clusters_are_told_apart(
    user: Any, tiny_problem: dict[str, Any], clusters: list[str]
) -> None:
    for cluster in clusters:
        import_problem(problem_from_dict(tiny_problem), cluster_name=cluster)
    rows = list(
        Profile.unscoped.select_related("cluster", "model").order_by("name", "cluster__name")
    )
    names = ["big", "small"]
    if len(clusters) > 1:
        names = [f"{name}, {cluster}" for name in names for cluster in clusters]
    assert sorted(profiles_memory(rows).figure["data"][0]["y"]) == names
    assert sorted(trace["name"] for trace in profile_speed(rows).figure["data"]) == names


MANY_LAYERS = {
    "gpu": "T4", "vram_bytes": 1.0, "max_layers": 9, "tokens_per_s": [1.0] * 9,
    "kv_capacity_token_layers": [1.0] * 9,
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"format": "helixweb.problem/1"}, "format is 'helixweb.problem/1'"),
        ({"model": "unheard-of"}, "model is 'unheard-of', which is not known here"),
        ({"extra": 1}, "extra"),
        ({"evidence": 3}, "evidence is no object"),
        ({"profile": {"gpu": "T4"}}, "vram_bytes"),
        ({"profile": MANY_LAYERS}, "max_layers is 9"),
    ],
)
def test_a_bad_profile_file_is_refused_with_the_field_that_is_wrong(
    cluster: Cluster, browser: Client, change: dict[str, Any], told: str
) -> None:
    document = profile_versions.export_profile(Profile.unscoped.get(name="big")) | change
    answer = browser.post("/profiles/import", {"cluster": cluster.pk, "text": json.dumps(document)})
    assert answer.status_code == 422
    assert told in str(answer.context["form"].errors["text"][0])
    assert Profile.unscoped.get(name="big").versions.count() == 0
