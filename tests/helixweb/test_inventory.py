"""The inventory over REST and in the browser, for the planner, and which machines are there."""

import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from rest_framework.test import APIClient

from helixweb.common.models import Event
from helixweb.inventory.models import (
    Cluster,
    Coordinator,
    LanguageModel,
    Link,
    Node,
    NodeState,
    Profile,
    RegionLink,
)
from helixweb.inventory.services import presence, problems, records
from helixweb.inventory.tasks import announce_silent_processes
from planner.domain.errors import InvalidProblem
from tests.helixweb.looking import answered, contains, fresh, shows, tight
from tests.helixweb.process_doubles import FakeAgent, FakeCoordinator

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


@pytest.mark.parametrize("written", ["1_0", "+{}", " {}", "-1", "x", "9" * 30, "wide"])
def test_an_address_with_an_id_that_is_none_names_no_row(
    api: APIClient, cluster: Cluster, written: str
) -> None:
    wide = str(cluster.pk).translate({ord("0") + digit: 0xFF10 + digit for digit in range(10)})
    pk = wide if written == "wide" else written.format(cluster.pk)
    for path in (f"clusters/{pk}", f"clusters/{pk}/reach", f"links/{pk}"):
        answered(api.get(f"/api/v1/{path}/"), 404)


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


LINK = {"bandwidth_bytes_per_s": "100", "latency_s": "20"}


def text_of(browser: Client, name: str, *args: int) -> str:
    response = answered(browser.get(reverse(name, args=args)), 200)
    return response.content.decode()


def test_an_empty_cluster_says_how_to_begin(browser: Client) -> None:
    empty = records.create(Cluster, name="empty")
    page = text_of(browser, "cluster", empty.pk)
    contains(page, "No nodes yet", "Make a join command")
    assert "No two nodes" not in page
    text_of(browser, "network", empty.pk)


def test_pages_of_node_network_and_model_show_numbers(browser: Client, cluster: Cluster) -> None:
    mini = Node.unscoped.get(name="mini")
    answer = browser.get(reverse("node", args=[cluster.pk, mini.pk]))
    shows(answer, "100 Mbit/s", "20 ms")
    (profile,) = answer.context["profiles"]
    assert [speed for _, _, speed, _ in profile.steps] == [150.0, 70.0]
    network = text_of(browser, "network", cluster.pk)
    contains(network, "12 of 12 directed pairs", "100 Mbit/s to 10 Gbit/s")
    model = text_of(browser, "model", LanguageModel.objects.get().pk)
    contains(model, "4 layers \u00d7 1 MB = <strong>4 MB</strong>", "fits 1.8 times")
    assert "tiny: 1.8 \u00d7" in text_of(browser, "models")


def test_people_write_megabits_and_rows_hold_bytes(browser: Client, cluster: Cluster) -> None:
    browser.post(
        reverse("link-new", args=[cluster.pk]), {"source": "mini", "target": "tower", **LINK}
    )
    link = Link.unscoped.get(source="mini")
    assert (link.bandwidth_bytes_per_s, link.latency_s) == (12.5e6, 0.02)
    form = browser.get(reverse("link-edit", args=[cluster.pk, link.pk])).context["form"]
    assert (form["bandwidth_bytes_per_s"].value(), form["latency_s"].value()) == (100.0, 20.0)


def test_pages_show_measured_times_and_prices(browser: Client, cluster: Cluster) -> None:
    sent = {
        "model": LanguageModel.objects.get().pk, "name": "fast", "vram_bytes": "16",
        "tokens_per_s": "10, 5", "kv_capacity_token_layers": "100 50", "price_per_hour": "2.25",
        "layer_times": '{"prompt": [[1, 0.001]], "decode": [[1, 0.002]]}',
    }  # fmt: skip
    assert browser.post(reverse("profile-new", args=[cluster.pk]), sent).status_code == 302
    fast = Profile.unscoped.get(name="fast")
    assert (fast.max_layers, fast.tokens_per_s, fast.vram_bytes) == (2, [10.0, 5.0], 16e9)
    page = browser.get(reverse("cluster", args=[cluster.pk])).content.decode()
    assert page.count("<td>measured</td>") == 1
    assert page.count("<td>estimated</td>") == 2
    mini = Node.unscoped.get(name="mini")
    edit = reverse("node-edit", args=[cluster.pk, mini.pk])
    change = {"name": "mini", "region": "away", "profile_name": "fast", "price_per_hour": "1.5"}
    assert browser.post(edit, change).status_code == 302
    page = tight(browser.get(reverse("node", args=[cluster.pk, mini.pk])).content.decode())
    assert "Layer times are measured. Price per hour: 2.25." in page
    assert "<dt>Price per hour</dt><dd>1.5</dd>" in page


@pytest.mark.parametrize(
    ("name", "sent", "field", "said"),
    [
        ("node-new", {"name": "tower", "region": "home"}, "name", "exists already"),
        ("node-new", {"name": "x", "region": "home", "profile_name": "H100"}, "profile_name",
         "H100"),
        ("link-new", {"source": "tower", "target": "mini", **LINK}, "__all__", "exists already"),
        ("link-new", {"source": "mini", "target": "tower", "bandwidth_bytes_per_s": "-1",
         "latency_s": "1"}, "bandwidth_bytes_per_s", "greater than 0"),
        ("profile-new", {"name": "x", "vram_bytes": "1", "tokens_per_s": "1 two",
         "kv_capacity_token_layers": "1"}, "tokens_per_s", "'two' is not a number"),
        ("profile-new", {"name": "x", "vram_bytes": "1", "tokens_per_s": "1",
         "kv_capacity_token_layers": "1", "layer_times": '{"prompt": [[1, 1]]}'}, "__all__",
         "layer_times.decode is missing"),
        ("profile-new", {"name": "x", "vram_bytes": "1", "tokens_per_s": "1 2",
         "kv_capacity_token_layers": "1"}, "kv_capacity_token_layers", "give one for each"),
    ],
)  # fmt: skip
def test_a_bad_form_keeps_what_was_typed_and_says_what_is_wrong(
    browser: Client, cluster: Cluster, name: str, sent: dict[str, Any], field: str, said: str
) -> None:
    if name == "profile-new":
        sent = {"model": LanguageModel.objects.get().pk, **sent}
    page = answered(browser.post(reverse(name, args=[cluster.pk]), sent), 422)
    form = page.context["form"]
    assert said in " ".join(form.errors[field])
    for key, value in sent.items():
        assert str(form[key].value()) == str(value)


def test_a_joined_node_keeps_its_name(browser: Client, cluster: Cluster) -> None:
    node = Node.unscoped.get(name="mini")
    Node.unscoped.filter(pk=node.pk).update(uuid="0" * 32)
    browser.post(
        reverse("node-edit", args=[cluster.pk, node.pk]),
        {"name": "other", "region": "moon", "profile_name": "small"},
    )
    assert (fresh(node).name, node.region) == ("mini", "moon")


def test_the_problem_file_is_downloaded_or_said_why_not(browser: Client, cluster: Cluster) -> None:
    url = reverse("cluster-export", args=[cluster.pk, LanguageModel.objects.get().pk])
    file = browser.get(url)
    assert file.json()["name"] == "tiny"
    assert "attachment" in file.headers["Content-Disposition"]
    records.update(Node.unscoped.get(name="mini"), profile_name="")
    page = browser.get(url, follow=True)
    assert "has no compute profile" in page.content.decode()


def test_many_links_are_paged_and_narrowed_to_a_node(browser: Client, cluster: Cluster) -> None:
    names = [f"n{number}" for number in range(60)]
    for name in names:
        records.create(Node, cluster=cluster, name=name)
        numbers = {"bandwidth_bytes_per_s": 1e6, "latency_s": 0}
        records.create(Link, cluster=cluster, source="tower", target=name, **numbers)
    url = reverse("network", args=[cluster.pk])
    assert len(browser.get(url).context["page"].object_list) == 50
    assert "1 to 50 of 61" in browser.get(url).content.decode()
    narrowed = browser.get(url, {"node": "n7"}).context["page"]
    assert [link.target for link in narrowed.object_list] == ["n7"]


def test_a_form_for_a_profile_begins_blank(browser: Client, cluster: Cluster) -> None:
    page = browser.get(f"/clusters/{cluster.pk}/profiles/new").content.decode()
    assert "null</textarea>" not in page


@pytest.fixture
def tower(cluster: Cluster, user: Any) -> Node:
    agent = FakeAgent(cluster, "tower", user, port=7001)
    Event.objects.all().delete()
    return agent.row


def in_s(seconds: float) -> datetime:
    return timezone.now() + timedelta(seconds=seconds)


def states() -> list[str]:
    return [event.data["state"] for event in Event.objects.filter(type="node").order_by("pk")]


@pytest.mark.usefixtures("time_stands_still")
def test_a_silence_is_announced_once_and_so_is_the_return(tower: Node) -> None:
    assert presence.announce_silent(in_s(9)) == 0
    assert presence.announce_silent(in_s(60)) == 1
    assert presence.announce_silent(in_s(60)) == 0
    assert fresh(tower).state_at(in_s(60)) is NodeState.LOST
    presence.record_seen(tower, in_s(60))
    presence.record_seen(tower, in_s(60))
    assert states() == ["lost", "online"]


def test_a_coordinator_is_watched_like_a_node_by_the_beat_task(cluster: Cluster, user: Any) -> None:
    row = FakeCoordinator(cluster, user).row
    Coordinator.unscoped.update(last_seen_at=in_s(-60))
    Event.objects.all().delete()
    announce_silent_processes()
    assert states() == ["lost"]
    assert Event.objects.get().data["coordinator"] == row.pk


def test_a_declared_node_is_never_lost(cluster: Cluster) -> None:
    Event.objects.all().delete()
    assert presence.announce_silent(in_s(60)) == 0
    assert {node.state_at(in_s(60)) for node in cluster.nodes.all()} == {NodeState.DECLARED}


def test_a_sign_of_life_of_a_deleted_node_does_nothing(tower: Node) -> None:
    stale = Node.unscoped.get(pk=tower.pk)
    records.delete(tower)
    presence.record_seen(stale, in_s(60))
    assert not Node.unscoped.filter(name="tower").exists()


@pytest.fixture
def model(cluster: Cluster) -> LanguageModel:
    return problems.models_of(cluster)[0]


def refusal(cluster: Cluster, model: LanguageModel) -> str:
    with pytest.raises(InvalidProblem) as refused:
        problems.build_problem(cluster, model)
    return str(refused.value)


def test_what_a_plan_lacks_is_named_with_the_choice(cluster: Cluster, model: LanguageModel) -> None:
    empty = records.create(Cluster, name="empty")
    assert "has no nodes; join one" in refusal(empty, model)
    other = records.create(
        LanguageModel, name="other", num_layers=2, activation_bytes_per_token=8, bytes_per_layer=1
    )
    assert "'other'" in refusal(cluster, other), "its profiles are of another model"
    records.update(Node.unscoped.get(name="mini"), profile_name="")
    said = refusal(cluster, model)
    contains(said, "'mini' has no compute profile", "big, small")


def test_a_node_that_no_link_reaches_is_named(cluster: Cluster, model: LanguageModel) -> None:
    records.delete(RegionLink.unscoped.get(source="away"))
    assert "no link leads from node 'mini' (region 'away')" in refusal(cluster, model)
    records.delete(RegionLink.unscoped.get(target="away"))
    records.delete(Link.unscoped.get())
    assert "no link leads to node 'mini'" in refusal(cluster, model)


def test_a_declared_node_takes_its_links_along_when_it_is_renamed(cluster: Cluster) -> None:
    records.update(Node.unscoped.get(name="mini"), name="midi")
    assert Link.unscoped.get().target == "midi"
