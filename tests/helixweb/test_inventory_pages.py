"""The inventory in the browser: every page shows what is stored, every form says what is wrong."""

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from helixweb.inventory.models import Cluster, LanguageModel, Link, Node, Profile
from helixweb.inventory.services import records
from tests.helixweb.looking import answered, contains, fresh, shows
from tests.helixweb.markup import tight

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


def test_pages_say_whether_layer_times_are_measured_and_what_a_node_costs(
    browser: Client, cluster: Cluster
) -> None:
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
