"""Profiles as files: what is wrong with one is said by its field."""

import json
from typing import Any

import pytest
from django.test import Client

from helixweb.inventory.models import Cluster, Profile
from helixweb.inventory.services import profile_versions

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
