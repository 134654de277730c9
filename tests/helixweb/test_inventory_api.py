"""The inventory over REST: strict about fields, plain about what is wrong."""

import json
from typing import Any

import pytest
from rest_framework.test import APIClient

from helixweb.inventory.models import Cluster, LanguageModel, Node
from tests.helixweb.looking import answered, fresh

TIMES = {"prompt": [[1, 0.001], [8, 0.002]], "decode": [[1, 0.001]]}
PROFILE = {
    "name": "fast", "vram_bytes": 1e9, "max_layers": 2, "tokens_per_s": [10, 5],
    "kv_capacity_token_layers": [100, 50],
}  # fmt: skip


def created(api: APIClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = answered(api.post(f"/api/v1/{path}/", body), 201)
    made: dict[str, Any] = answer.json()
    assert api.get(f"/api/v1/{path}/{made['id']}/").json() == made
    return made


def errors(answer: Any) -> dict[str, str]:
    assert answer.headers["Content-Type"] == "application/problem+json", answer.content
    return {error["field"]: error["message"] for error in answer.json()["errors"]}


@pytest.mark.parametrize(
    ("path", "body", "field", "said"),
    [
        ("clusters", {"name": "x", "colour": "red"}, "colour", "Unknown field"),
        ("clusters", {}, "name", "required"),
        ("clusters", {"name": "tiny"}, "name", "already exists"),
        ("clusters", {"name": " "}, "name", "blank"),
        ("clusters", {"name": "x", "mean_prompt_tokens": 0}, "mean_prompt_tokens", "greater than"),
        ("nodes", {"name": "sink"}, "name", "'sink' is reserved"),
        ("nodes", {"name": "n" * 65}, "name", "64"),
        ("nodes", {"name": "x", "profile_name": "H100"}, "", "'H100'"),
        ("links", {"source": "tower", "target": "attic"}, "", "'attic' is not a node"),
        ("links", {"source": "tower", "target": "tower"}, "", "to itself"),
        ("links", {"source": "tower", "target": "mini"}, "", "unique set"),
        ("links", {"latency_s": -1}, "latency_s", "0 or a greater"),
        ("links", {"bandwidth_bytes_per_s": "nan"}, "bandwidth_bytes_per_s", "valid number"),
        ("profiles", {**PROFILE, "tokens_per_s": [1, "inf"]}, "tokens_per_s", "valid number"),
        ("profiles", {**PROFILE, "tokens_per_s": [1]}, "", "has 1 entries"),
        (
            "profiles",
            {**PROFILE, "layer_times": {**TIMES, "prompt": [[1]]}},
            "layer_times",
            "at least 2",
        ),
        ("profiles", {**PROFILE, "layer_times": {**TIMES, "a": 1}}, "layer_times", "Unknown"),
        (
            "profiles",
            {**PROFILE, "layer_times": {**TIMES, "decode": [[2, 1], [1, 1]]}},
            "",
            "has 1 tokens after 2",
        ),
        (
            "profiles",
            {
                **PROFILE,
                "batch_limits": {"prompt_max_requests": [1], "decode_max_tokens": [1, 1]},
            },
            "",
            "batch_limits.prompt_max_requests has 1 entries",
        ),
        ("profiles", {**PROFILE, "price_per_hour": 0}, "price_per_hour", "greater than 0"),
        ("nodes", {"name": "x", "price_per_hour": -1}, "price_per_hour", "greater than 0"),
        ("models", {"name": "x", "num_layers": 0}, "num_layers", "greater than or equal to 1"),
        ("join-tokens", {"role": "boss"}, "role", "boss"),
    ],
)
def test_a_bad_value_is_refused_with_its_field(
    api: APIClient, cluster: Cluster, path: str, body: dict[str, Any], field: str, said: str
) -> None:
    filled: dict[str, Any] = dict(body)
    if path != "clusters" and path != "models":
        filled["cluster"] = cluster.pk
    if path == "links":
        ends = {"source": "a", "target": "b"}
        filled = {"bandwidth_bytes_per_s": 1e6, "latency_s": 0.01, **ends} | filled
    if path == "profiles":
        filled["model"] = LanguageModel.objects.get().pk
    answer = answered(api.post(f"/api/v1/{path}/", filled), 400)
    found = errors(answer)
    key = next((name for name in found if name.split(".")[0] == field), "detail")
    assert said in found[key]


@pytest.mark.parametrize("written", ["{}.5", '" {}"', '"{}.0"', '"{}_"', '"+{}"', "[{}]"])
def test_an_id_that_is_none_names_no_row(api: APIClient, cluster: Cluster, written: str) -> None:
    """Python makes a number of each that looks like an id."""
    node, model = cluster.nodes.get(name="tower"), LanguageModel.objects.get()
    for path, key, pk, rest in (
        ("nodes", "cluster", cluster.pk, {"name": "new", "region": "home"}),
        ("drains", "node", node.pk, {}),
        ("profilings", "model", model.pk, {"node": node.pk}),
    ):
        body = json.dumps(rest)[:-1] + (", " if rest else "") + f'"{key}": {written.format(pk)}}}'
        answer = api.post(f"/api/v1/{path}/", body, content_type="application/json")
        assert set(errors(answered(answer, 400))) == {key}, answer.json()


def test_a_row_stays_in_its_cluster(api: APIClient, cluster: Cluster) -> None:
    other = created(api, "clusters", {"name": "other"})["id"]
    node = Node.unscoped.get(name="mini")
    answer = api.patch(f"/api/v1/nodes/{node.pk}/", {"cluster": other})
    assert "cannot be changed" in errors(answer)["cluster"]


def test_what_an_agent_reports_cannot_be_written(api: APIClient, cluster: Cluster) -> None:
    node = Node.unscoped.get(name="mini")
    api.patch(f"/api/v1/nodes/{node.pk}/", {"data_endpoint": "tcp://evil:1"})
    assert fresh(node).data_endpoint == ""


def test_a_problem_says_which_models_it_could_be_for(api: APIClient, cluster: Cluster) -> None:
    model = LanguageModel.objects.get()
    path = f"/api/v1/clusters/{cluster.pk}/problem/"
    assert api.get(path, {"model": model.pk}).json()["name"] == "tiny"
    for wrong in ("llama", "9" * 5000):
        assert "not the id" in errors(api.get(path, {"model": wrong}))["model"]
    empty = created(api, "clusters", {"name": "empty"})["id"]
    assert "none yet" in errors(api.get(f"/api/v1/clusters/{empty}/problem/"))["model"]


def test_no_credential_or_token_hash_is_ever_shown(api: APIClient, cluster: Cluster) -> None:
    api.post("/api/v1/join-tokens/", {"cluster": cluster.pk, "role": "node"})
    for path in ("nodes", "join-tokens", "coordinators"):
        assert "hash" not in api.get(f"/api/v1/{path}/").content.decode()
