"""The inventory as a file: out, compared with what is there, and in again; all of it or nothing."""

import json
import random
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from helixweb.access.models import Grant
from helixweb.alerting.kinds import DEFAULTS
from helixweb.alerting.models import AlertRule, Channel
from helixweb.alerting.services import evaluate
from helixweb.inventory.as_code.api import yaml_text
from helixweb.inventory.as_code.importing import import_problem
from helixweb.inventory.models import (
    Change,
    Cluster,
    LanguageModel,
    Link,
    Node,
    NodeTag,
    Origin,
    Profile,
    RegionLink,
    SharedBandwidth,
)
from helixweb.inventory.services import bulk, records
from planner.document import parse_document
from planner.serialization import problem_from_dict
from tests.helixweb.inventory_files import (
    EXPORT,
    IMPORT,
    Document,
    bring_in,
    bring_in_text,
    client,
    exported,
    made_up,
    steps,
    told_rows,
    wipe,
)
from tests.helixweb.looking import answered, api_of, contains, denied
from tests.helixweb.recorded import recorded


@pytest.fixture
def world(user: Any, measured_problem: Document, tiny_problem: Document) -> Document:
    """Two clusters with every kind of row that can be declared; their document."""
    recorded(lambda: declare_two_clusters(user, measured_problem, tiny_problem))
    return exported()


def declare_two_clusters(user: Any, measured_problem: Document, tiny_problem: Document) -> None:
    cluster = import_problem(problem_from_dict(measured_problem))
    other = import_problem(problem_from_dict(tiny_problem), cluster_name="O'Brien: 1e5")
    records.update(cluster, replanning="never", mean_prompt_tokens=77.5)
    records.create(
        SharedBandwidth, cluster=cluster, name="uplink", members=["home", "mini"],
        direction="egress", scope="region", bandwidth_bytes_per_s=1.25e7,
    )  # fmt: skip
    records.create(
        Link, cluster=other, source="coordinator", target="mini", bandwidth_bytes_per_s=1 / 3,
        latency_s=0, origin=Origin.MEASURED,
    )  # fmt: skip
    node = Node.unscoped.get(cluster=cluster, name="tower")
    bulk.change_nodes(Node.unscoped.all(), [node.pk], add_tags=("loud", "1e5"))
    profile = Profile.unscoped.filter(cluster=other).first()
    Profile.unscoped.filter(pk=profile.pk).update(
        instance_times={"1": {"prefill": [1e-6, 0, 0, 1e-3], "decode": [0, 1e-5, 0, 1e-3]}}
    )


@pytest.mark.usefixtures("world")
def test_export_wipe_and_import_give_an_empty_diff() -> None:
    text = client().get(EXPORT, headers={"Accept": "application/yaml"}).content
    before = exported()
    for kind in (Node, NodeTag, Link, RegionLink, SharedBandwidth, Profile):
        assert kind._base_manager.exists()
    assert steps(bring_in_text(text, dry_run=True, prune=True)) == []
    wipe()
    assert bring_in_text(text).json()["applied"] is True
    assert exported() == before
    assert steps(bring_in_text(text, dry_run=True, prune=True)) == []
    assert steps(bring_in(before, prune=True)) == []


def test_what_the_site_measured_since_an_export_is_no_difference(world: Document) -> None:
    measured = {"bandwidth_bytes_per_s": 5e6, "latency_s": 2.6e-4, "origin": Origin.MEASURED}
    estimated = Link.unscoped.exclude(origin=Origin.MEASURED).filter(cluster__name="tiny")[0]
    Link.unscoped.filter(pk=estimated.pk).update(origin=Origin.ESTIMATED)
    world = exported()
    rows = Link.unscoped.filter(origin__in=(Origin.MEASURED, Origin.ESTIMATED))
    assert rows.update(**measured) == 2
    tiny = Cluster.unscoped.get(name="tiny")
    records.create(Link, cluster=tiny, source="mini", target="laptop", **measured)
    assert steps(bring_in(world, dry_run=True, prune=True)) == []
    assert bring_in(world, prune=True).status_code == 200
    assert rows.filter(latency_s=2.6e-4).count() == 3, "they stay as measured"


def test_numbers_of_a_person_stand_against_what_was_measured_since(world: Document) -> None:
    links = next(one["links"] for one in world["clusters"] if one["name"] == "tiny")
    links[0]["origin"] = "imported"
    bring_in(world)
    changed = Link.unscoped.get(cluster__name="tiny", source=links[0]["source"])
    records.update(changed, latency_s=0.5, origin=Origin.MEASURED)
    assert [step[:2] for step in steps(bring_in(world, dry_run=True))] == [("change", "links")]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.usefixtures("user")
def test_any_inventory_comes_back_as_it_was(seed: int) -> None:
    document = made_up(random.Random(seed))
    bring_in_text(json.dumps(document), "application/json")
    assert steps(bring_in(document, prune=True)) == []
    text = client().get(EXPORT, {"format": "yaml"}).content
    tables = {
        kind: client().get(EXPORT, {"format": "csv", "kind": kind}).content
        for kind in ("nodes", "links", "region_links")
    }
    wipe()
    assert len(steps(bring_in_text(text))) > 40
    assert steps(bring_in(document, prune=True)) == []
    for kind, table in tables.items():
        assert steps(bring_in_text(table, "text/csv", kind=kind, prune=True)) == []


def rules(document: Document, cluster: str = "tiny") -> list[Document]:
    return named(document, cluster)["alert_rules"]


def named(document: Document, cluster: str) -> Document:
    return next(one for one in document["clusters"] if one["name"] == cluster)


def looked_at() -> Document:
    """The rules of cluster tiny have been looked at, so it has some; no other's."""
    evaluate(Cluster.unscoped.get(name="tiny"), now=timezone.now())
    rule = AlertRule.unscoped.get(kind="ttft_p95")
    rule.threshold, rule.clears_at, rule.severity, rule.enabled = 2.5, 2, "critical", False
    rule.save()
    return exported()


@pytest.mark.usefixtures("world")
def test_alert_rules_come_back_and_no_usual_ones_beside_them() -> None:
    before = looked_at()
    assert "alert_rules" not in named(before, "O'Brien: 1e5"), "it is about to get the usual ones"
    assert len(rules(before)) == len(DEFAULTS)
    rules(before).remove(next(rule for rule in rules(before) if rule["kind"] == "node_lost"))
    text = json.dumps(before)
    wipe()
    assert ("add", "alert_rules", "ttft p95") in steps(bring_in_text(text, "application/json"))
    evaluate(Cluster.unscoped.get(name="tiny"), now=timezone.now())
    assert exported() == before
    assert steps(bring_in(before, prune=True)) == []
    assert Change.unscoped.filter(kind="alertrule", action="added").count() == len(rules(before))


@pytest.mark.usefixtures("world")
def test_of_a_rule_the_channels_stay_and_what_is_left_out_goes_when_pruned() -> None:
    before = looked_at()
    cluster = Cluster.unscoped.get(name="tiny")
    channel = records.create(
        Channel, cluster=cluster, name="ops", way="email", addresses=["a@b.de"]
    )
    AlertRule.unscoped.get(kind="ttft_p95").channels.add(channel)
    assert "a@b.de" not in json.dumps(exported())
    rule = next(rule for rule in rules(before) if rule["kind"] == "ttft_p95")
    rules(before)[:] = [{**rule, "threshold": 9.5, "enabled": True}]
    assert steps(bring_in(before)) == [("change", "alert_rules", "ttft p95")]
    changed = AlertRule.unscoped.get(kind="ttft_p95")
    assert (changed.threshold, changed.enabled, *changed.channels.all()) == (9.5, True, channel)
    assert len(steps(bring_in(before, prune=True))) == len(DEFAULTS) - 1
    assert AlertRule.unscoped.get() == changed


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "moon_phase"}, "kind: Value 'moon_phase' is not a valid choice"),
        ({"enabled": 1}, "enabled is 1; it must be true or false"),
        ({"threshold": True}, "the boolean true; it must be a number"),
        ({"clears_at": 99}, "alert rule 'slow': It is over at 99, which is past its threshold"),
        ({"channels": ["ops"]}, "'channels' is not a key of one alert rule"),
    ],
)
def test_a_rule_that_cannot_be_is_refused(world: Document, change: Document, said: str) -> None:
    rule = {"name": "slow", "kind": "ttft_p95", "threshold": 5, "clears_at": 4, **change}
    named(world, "tiny")["alert_rules"] = [rule]
    denied(bring_in(world), 400, said)
    assert not AlertRule.unscoped.exists()


def test_one_cluster_comes_with_its_own_models_only(world: Document) -> None:
    records.create(
        LanguageModel, name="idle", num_layers=1, activation_bytes_per_token=1, bytes_per_layer=1
    )
    cluster = Cluster.unscoped.get(name="tiny")
    document = exported(cluster=cluster.pk)
    assert [one["name"] for one in document["clusters"]] == ["tiny"]
    assert [one["name"] for one in document["models"]] == ["tiny-llama"]
    assert "idle" in [one["name"] for one in exported()["models"]]


def test_a_dry_run_tells_and_does_nothing(world: Document) -> None:
    tiny = next(one for one in world["clusters"] if one["name"] == "tiny")
    tiny["nodes"][0]["region"] = "away"
    tiny["nodes"].append({"name": "shed"})
    expected = [("change", "nodes", "tower"), ("add", "nodes", "shed")]
    changes = told_rows()
    assert steps(bring_in(world, dry_run=True)) == expected
    assert told_rows() == changes
    assert not Node.unscoped.filter(name="shed").exists()
    answer = bring_in(world)
    assert steps(answer) == expected
    assert answer.json()["counts"] == [{"kind": "nodes", "add": 1, "change": 1, "remove": 0}]
    told = answer.json()["steps"][0]
    assert (told["before"], told["after"]) == ({"region": "home"}, {"region": "away"})
    assert steps(bring_in(world)) == []


def test_the_change_log_has_a_line_for_each_row_in_one_batch(world: Document) -> None:
    tiny = next(one for one in world["clusters"] if one["name"] == "tiny")
    tiny["nodes"][0] |= {"tags": ["quiet"], "price_per_hour": None}
    tiny["nodes"].append({"name": "shed", "tags": ["quiet"]})
    newest = Change.unscoped.order_by("-pk").values_list("pk", flat=True).first() or 0
    bring_in(world)
    lines = list(Change.unscoped.filter(pk__gt=newest).order_by("pk"))
    assert [(line.action, line.name) for line in lines] == [("changed", "tower"), ("added", "shed")]
    assert len({line.batch for line in lines}) == 1
    assert lines[0].before["tags"] == ["1e5", "loud"]
    assert lines[0].after["tags"] == ["quiet"]
    assert lines[0].actor == "ada"


def test_only_prune_removes_and_only_in_sections_that_the_file_has(world: Document) -> None:
    tiny = next(one for one in world["clusters"] if one["name"] == "tiny")
    tiny["nodes"] = [node for node in tiny["nodes"] if node["name"] != "mini"]
    for section in ("links", "shared_bandwidths"):
        del tiny[section]
    assert steps(bring_in(world)) == []
    found = steps(bring_in(world, prune=True))
    # A node takes its links along.
    assert found == [("remove", "links", "tower -> mini"), ("remove", "nodes", "mini")]
    assert not Node.unscoped.filter(cluster__name="tiny", name="mini").exists()
    assert SharedBandwidth.unscoped.get().members == ["home"]
    world["clusters"] = []
    assert steps(bring_in(world, prune=True)) == []
    assert Cluster.unscoped.count() == 2


def test_a_key_that_is_left_out_stays_as_it_is(world: Document) -> None:
    document = {
        "format": world["format"],
        "clusters": [{"name": "tiny", "nodes": [{"name": "tower", "region": "away"}]}],
    }
    assert steps(bring_in(document)) == [("change", "nodes", "tower")]
    row = Node.unscoped.get(cluster__name="tiny", name="tower")
    assert (row.region, row.profile_name, row.price_per_hour) == ("away", "big", 1.75)


HEAD = "format: helixweb.inventory/1\n"
TINY = f"{HEAD}clusters:\n- name: tiny\n"
BAD: list[tuple[str, tuple[str, ...]]] = [
    ("", ("the document", "mapping")),
    ("format: other/1\n", ("format", "other/1", "helixweb.inventory/1")),
    (f"{HEAD}cluster: []\n", ("cluster", "models, clusters")),
    (f"{HEAD}clusters: 7\n", ("clusters", "must be a list")),
    (f"{HEAD}clusters:\n- 7\n", ("clusters[0] (line 3)", "mapping")),
    (f"{HEAD}clusters:\n- regoin: x\n", ("clusters[0] (line 3)", "clusters[0].regoin")),
    (f"{HEAD}clusters:\n- coordinator_region: x\n", ("(line 3)", "name is missing")),
    (f"{TINY}- name: tiny\n", ("clusters[1] (line 4)", "already at clusters[0]")),
    (f"{TINY}  nodes:\n  - name: a\n    regoin: x\n", ("nodes[0] (line 5)", "'regoin'", "region")),
    (f"{TINY}  nodes:\n  - name: 7\n", ("name", "7", "in quotes")),
    (f"{TINY}  nodes:\n  - name: a\n    price_per_hour: yes\n", ("price_per_hour", "'yes'")),
    (f"{TINY}  nodes:\n  - name: a\n    gpus: 1.5\n", ("gpus", "1.5", "whole number")),
    (f"{TINY}  nodes:\n  - name: a\n    tags: x\n", ("tags", "'x'", "list")),
    (f"{TINY}  nodes:\n  - name: a\n    tags: [a b]\n", ("tags", "'a b'", "one word")),
    (f"{TINY}  nodes:\n  - name: a\n    region: null\n", ("region", "empty")),
    (f"{TINY}  nodes:\n  - name: a\n    profile_name: H100\n", ("H100", "big, small")),
    (f"{TINY}  nodes:\n  - name: a\n    name: b\n", ("line 6", "appears twice")),
    (f"{TINY}  links:\n  - source: tower\n    target: mini\n    latency_s: -1\n",
     ("latency_s", "-1", "0 or a greater")),
    (f"{TINY}  links:\n  - source: tower\n    target: mini\n    latency_s: 3601\n",
     ("latency_s is 3601", "at most 3600")),
    (f"{TINY}  links:\n  - source: tower\n    target: laptop\n",
     ("tower -> laptop", "lacks bandwidth_bytes_per_s, latency_s")),
    (f"{TINY}  links:\n  - {{source: tower, target: attic, bandwidth_bytes_per_s: 1, "
     "latency_s: 0}\n", ("'attic'", "not a node of cluster 'tiny'")),
    (f"{TINY}  shared_bandwidths:\n  - {{name: s, members: [], direction: up, "
     "scope: nic, bandwidth_bytes_per_s: 1}\n", ("no member",)),
    (f"{TINY}  profiles:\n  - {{model: gpt, name: p, vram_bytes: 1, max_layers: 1, "
     "tokens_per_s: [1.0], kv_capacity_token_layers: [1.0]}\n", ("no model 'gpt'",)),
    (f"{TINY}  profiles:\n  - {{model: tiny-llama, name: big, max_layers: 9}}\n",
     ("tokens_per_s", "max_layers is 9")),
    (f"{HEAD}models:\n- {{name: m, num_layers: 0}}\n", ("num_layers", "1")),
    (f"{HEAD}models:\n- {{name: m}}\n", ("'m' is new and lacks num_layers",)),
    (f"{HEAD}models: &a [*a]\n", ("",)),
    (f"{HEAD}models: [\n", ("line",)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), BAD, ids=range(len(BAD)))
def test_a_bad_file_changes_nothing_and_names_line_value_and_remedy(
    cluster: Cluster, text: str, said: tuple[str, ...]
) -> None:
    before, changes = exported(), told_rows()
    for dry_run in (True, False):
        answer = answered(bring_in_text(text, dry_run=dry_run), 400)
        assert answer.headers["Content-Type"] == "application/problem+json"
        contains(answer.json()["detail"], *said)
    assert (exported(), told_rows()) == (before, changes)


@pytest.mark.parametrize(
    ("kind", "row", "said"),
    [
        ("models", '{"name": "m", "checkpoint": "/\\ud800"}', "half of a surrogate pair"),
        ("models", '{"name": "m", "checkpoint": "/\\u0000"}', "no text has"),
        ("models", '{"name": "m", "num_layers": 1' + "0" * 400 + "}", "must be a finite number"),
        ("models", '{"name": "m", "num_layers": 1e300}', "num_layers"),
        (
            "models",
            '{"name": "m", "bytes_per_layer": 1' + "0" * 400 + "}",
            "must be a finite number",
        ),
        ("models", '{"name": "' + "m" * 121 + '"}', "120"),
        ("clusters", '{"name": "c", "source": "\\u0000"}', "no text has"),
        ("clusters", '{"name": "c", "replanning": "later"}', "'later'"),
        ("clusters", '{"name": "c", "nodes": [{"name": {}}]}', "a mapping"),
        ("clusters", '{"name": "c", "nodes": [{"name": "a", "gpus": true}]}', "true"),
    ],
)
def test_unstorable_values_are_refused(db: None, user: Any, kind: str, row: str, said: str) -> None:
    text = f'{{"format": "helixweb.inventory/1", "{kind}": [{row}]}}'
    denied(bring_in_text(text, "application/json"), 400, said)


def test_one_bad_row_keeps_all_out_and_every_bad_row_is_told(world: Document) -> None:
    tiny = next(one for one in world["clusters"] if one["name"] == "tiny")
    tiny["nodes"] += [{"name": "fine"}, {"name": "sink"}, {"name": "worse", "price_per_hour": -1}]
    answer = answered(bring_in(world), 400)
    fields = [one["field"] for one in answer.json()["errors"]]
    index = world["clusters"].index(tiny)
    assert fields == [f"clusters[{index}].nodes[{at}]" for at in (4, 5)]
    assert not Node.unscoped.filter(name="fine").exists()


def test_a_body_that_is_too_long_is_refused(cluster: Cluster) -> None:
    assert bring_in_text(b"#" * 10_000_001).status_code == 413


def test_what_was_agreed_to_is_done_or_nothing(world: Document) -> None:
    tiny = next(one for one in world["clusters"] if one["name"] == "tiny")
    tiny["nodes"].append({"name": "shed"})
    digest = bring_in(world, dry_run=True).json()["digest"]
    records.update(Node.unscoped.get(cluster__name="tiny", name="mini"), region="home")
    denied(bring_in(world, expect=digest), 409, "compare them again")
    assert not Node.unscoped.filter(name="shed").exists()
    digest = bring_in(world, dry_run=True).json()["digest"]
    assert bring_in(world, expect=digest).json()["digest"] == digest


@pytest.mark.parametrize(
    ("query", "media"),
    [
        ({"dryrun": 1}, "application/yaml"),
        ({"kind": "nodes"}, "application/yaml"),
        ({"cluster": 1}, "application/json"),
        ({"dry_run": "perhaps"}, "application/yaml"),
        ({"expect": "abc"}, "application/yaml"),
        ({"cluster": 10**30, "kind": "nodes"}, "text/csv"),
    ],
)
def test_unusable_parameters_are_refused(cluster: Cluster, query: Document, media: str) -> None:
    text = json.dumps({"format": "helixweb.inventory/1"})
    assert bring_in_text(text, media, **query).status_code == 400


def test_an_operator_of_one_cluster_cannot_change_more(world_of_two: tuple[Cluster, Any]) -> None:
    other, operator = world_of_two
    one = api_of(operator)
    own = {
        "format": "helixweb.inventory/1",
        "clusters": [{"name": "tiny", "nodes": [{"name": "x"}]}],
    }
    assert one.post(IMPORT, own).status_code == 200
    for clusters in ([{"name": other.name, "replanning": "never"}], [{"name": "new"}]):
        answered(one.post(IMPORT, {**own, "clusters": clusters}), 403)
    model = {"name": "tiny-llama", "num_layers": 9}
    assert one.post(IMPORT, {**own, "models": [model]}).status_code == 403
    assert LanguageModel.objects.get().num_layers == 4
    named = [told["name"] for told in one.get(EXPORT).json()["clusters"]]
    assert named == ["tiny"]


@pytest.fixture
def world_of_two(cluster: Cluster) -> tuple[Cluster, Any]:
    """Another cluster, and who may change only the first."""
    operator = get_user_model().objects.create_user("grace")
    Grant.objects.create(user=operator, cluster=cluster, role="operator")
    return Cluster.objects.create(name="other"), operator


PLAIN = st.text(
    st.characters(exclude_categories=("C",)), min_size=1, max_size=12
)  # names of rows have no control characters
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | PLAIN | st.sampled_from(["1e5", "1.5e+3", "yes", "null", "~", "=", "<<", "0x1f", "1_000",
                               "2026-01-02", "a: b", "- x", "#", "'", '"', "1:30", ".5E-1"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(PLAIN, inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(VALUES)
def test_yaml_is_read_as_it_was_written(value: Any) -> None:
    document = {"value": value}
    assert parse_document(yaml_text(document), name_hint="x.yaml") == document
