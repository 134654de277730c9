"""Pages and REST count the embedding and the output head where they are, and only there."""

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from helixweb.inventory.as_code.importing import import_problem
from helixweb.inventory.models import Cluster, LanguageModel
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
