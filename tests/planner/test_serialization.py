import copy
import json

import pytest
import yaml
from hypothesis import given, settings
from shared_networks import egress, sharing
from tiny_problems import problems, tiny_problem

from planner.domain.errors import InvalidProblem
from planner.placers.base import NeverCancelled
from planner.plan_options import PlanOptions
from planner.planning import compute_plan
from planner.serialization import (
    plan_from_dict,
    plan_from_text,
    plan_to_dict,
    problem_from_dict,
    problem_from_text,
    problem_to_dict,
    published_placements_from_text,
)
from tests.examples import examples

REMOVED = object()


@pytest.fixture
def document():
    return {
        "format": "helixweb.problem/1",
        "name": "two",
        "source": "a test",
        "model": {
            "name": "m",
            "num_layers": 4,
            "activation_bytes_per_token": 100,
            "token_bytes": 2,
            "bytes_per_layer": 1e6,
        },
        "workload": {"mean_prompt_tokens": 10, "mean_output_tokens": 20},
        "compute_profiles": {
            "p": {
                "gpu": "test",
                "vram_bytes": 1e9,
                "max_layers": 2,
                "tokens_per_s": [9, 8.5],
                "kv_capacity_token_layers": [100, 50],
            }
        },
        "nodes": [
            {"name": "a", "region": "r", "compute_profile": "p"},
            {"name": "b", "region": "r", "compute_profile": "p"},
        ],
        "coordinator": {"region": "r"},
        "network": {
            "region_pairs": [
                {"source": "r", "target": "r", "bandwidth_bytes_per_s": 1e6, "latency_s": 0.01}
            ],
            "links": [
                {
                    "source": "coordinator",
                    "target": "a",
                    "bandwidth_bytes_per_s": 2e6,
                    "latency_s": 0,
                }
            ],
        },
    }


@pytest.fixture
def plan():
    problem = tiny_problem([[9.0, 8.0], [9.0, 8.0]], num_layers=4)
    return compute_plan(
        problem,
        options=PlanOptions(objective="flow"),
        progress=lambda _: None,
        cancel=NeverCancelled(),
    )


def test_layer_times_keep_what_does_not_depend_on_tokens(document):
    fixed = {
        "prompt_step_s": 0.1, "decode_step_s": 0.2, "head_s": 0.3, "handling_s": 0.4, "hop_s": 0.5,
    }  # fmt: skip
    times = {"prompt": [[16.0, 0.01]], "decode": [[1.0, 0.02]], **fixed}
    document["compute_profiles"]["p"]["layer_times"] = times
    problem = problem_from_dict(document)
    assert {key: getattr(problem.compute_profiles["p"].layer_times, key) for key in fixed} == fixed
    assert problem_to_dict(problem)["compute_profiles"]["p"]["layer_times"] == times
    times["hops"] = 1.0
    with pytest.raises(InvalidProblem, match="hops"):
        problem_from_dict(document)


def changed(document, path, value):
    """A copy of `document` with the value at `path` replaced, added or REMOVED."""
    copied = copy.deepcopy(document)
    *parents, last = path
    place = copied
    for key in parents:
        place = place[key]
    if value is REMOVED:
        del place[last]
    else:
        place[last] = value
    return copied


def test_a_problem_is_read_from_json_and_from_yaml_alike(document):
    from_json = problem_from_text(json.dumps(document), name_hint="p.json")
    from_yaml = problem_from_text(yaml.safe_dump(document), name_hint="p.yaml")
    assert from_json == from_yaml
    assert from_json.cluster.link_between("coordinator", "a").bandwidth_bytes_per_s == 2e6
    assert from_json.cluster.link_between("a", "b").bandwidth_bytes_per_s == 1e6
    assert from_json.profile_of("a").tokens_per_s == (9.0, 8.5)


def test_without_a_suffix_the_first_character_tells_json_from_yaml(document):
    assert problem_from_text(json.dumps(document), name_hint="upload") == problem_from_text(
        yaml.safe_dump(document), name_hint="upload"
    )


def test_a_byte_order_mark_is_ignored(document):
    problem_from_text("\ufeff" + json.dumps(document), name_hint="p.json")


def test_yaml_reads_exponents_without_a_sign_as_numbers(document):
    text = yaml.safe_dump(document).replace("vram_bytes: 1000000000.0", "vram_bytes: 2e9")
    assert problem_from_text(text, name_hint="p.yml").profile_of("a").vram_bytes == 2e9


@settings(max_examples=examples(50))
@given(problem=problems())
def test_a_problem_survives_writing_and_reading(problem):
    text = json.dumps(problem_to_dict(problem), allow_nan=False)
    assert problem_from_text(text, name_hint="p.json") == problem


MODEL, NODE, LINK = ("model",), ("nodes", 1), ("network", "links", 0)
PROFILE = ("compute_profiles", "p")


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("format",), "helixweb.problem/9", ["format", "helixweb.problem/9", "problem/1"]),
        (("format",), REMOVED, ["format is missing; add it"]),
        (("name",), " ", ["name is ' '", "give it a name"]),
        (("name",), False, ["name is the boolean false", "in quotes"]),
        (("sauce",), "x", ["sauce is not a key", "use one of", "source"]),
        (("model",), REMOVED, ["model is missing; add it"]),
        (("model",), [], ["model is a list of 0 items", "must be a mapping"]),
        ((*MODEL, "num_layers"), REMOVED, ["model.num_layers is missing"]),
        ((*MODEL, "num_layers"), 0, ["model.num_layers is 0", "1 or more"]),
        ((*MODEL, "num_layers"), 2.5, ["model.num_layers is 2.5", "whole number"]),
        ((*MODEL, "num_layers"), True, ["model.num_layers is the boolean true", "a number"]),
        ((*MODEL, "num_layers"), "4", ["model.num_layers is the text '4'", "a number"]),
        ((*MODEL, "token_bytes"), 0, ["model.token_bytes is 0", "greater than 0"]),
        ((*MODEL, "token_bytes"), 10**400, ["model.token_bytes is a huge number", "finite"]),
        ((*MODEL, "depth"), 3, ["model.depth is not a key of the format"]),
        (("workload", "mean_output_tokens"), -1, ["workload.mean_output_tokens is -1"]),
        (("compute_profiles",), {}, ["nodes[0].compute_profile is 'p'", "none yet"]),
        ((*PROFILE, "max_layers"), 3, ["'p'", "2 entries", "max_layers is 3", "one entry for"]),
        ((*PROFILE, "max_layers"), -1, ["compute_profiles.p.max_layers is -1", "0 or more"]),
        ((*PROFILE, "tokens_per_s"), 9, ["compute_profiles.p.tokens_per_s is 9", "a list"]),
        ((*PROFILE, "tokens_per_s"), [9, -8], ["tokens_per_s[1] is -8", "0 or greater"]),
        ((*PROFILE, "tokens_per_s"), [9, None], ["tokens_per_s[1] is empty (null)", "a number"]),
        (("nodes",), [], ["nodes is an empty list", "add at least one"]),
        (("nodes",), {}, ["nodes is a mapping of 0 keys", "must be a list"]),
        ((*NODE, "compute_profile"), "q", ["nodes[1].compute_profile is 'q'", "use one of: p"]),
        ((*NODE, "name"), "a", ["nodes[1].name is 'a'", "nodes[0] has already", "unique"]),
        ((*NODE, "name"), "source", ["'source' is reserved", "rename"]),
        ((*NODE, "name"), 7, ["nodes[1].name is 7", "must be text"]),
        ((*NODE, "region"), REMOVED, ["nodes[1].region is missing"]),
        (("coordinator", "region"), REMOVED, ["coordinator.region is missing"]),
        (("network", "links"), REMOVED, ["network.links is missing"]),
        (
            (*LINK, "bandwidth_bytes_per_s"),
            -5,
            ["network.links[0].bandwidth_bytes_per_s is -5", "greater than 0"],
        ),
        ((*LINK, "latency_s"), -1, ["network.links[0].latency_s is -1", "0 or greater"]),
        ((*LINK, "target"), "c", ["network.links[0].target is 'c'", "not a node", "'coordinator'"]),
        ((*LINK, "source"), "a", ["link a -> a joins a node to itself"]),
    ],
)
def test_a_wrong_value_is_named_with_its_path_and_the_remedy(document, path, value, words):
    with pytest.raises(InvalidProblem) as caught:
        problem_from_dict(changed(document, path, value))
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


def test_the_same_link_twice_is_refused(document):
    document["network"]["links"] *= 2
    with pytest.raises(InvalidProblem, match="coordinator -> a is listed twice; keep one"):
        problem_from_dict(document)


@pytest.mark.parametrize(
    ("text", "name_hint", "words"),
    [
        ('{\n "name": }', "p.json", ["p.json: line 2", "not valid JSON", "correct it"]),
        ('{"name": NaN}', "p.json", ["NaN", "finite"]),
        ('{"name": -Infinity}', "p.json", ["-Infinity", "finite"]),
        ('{"name": "x", "name": "y"}', "p.json", ["'name'", "twice"]),
        ('{"a": ' + "9" * 5000 + "}", "p.json", ["not valid JSON", "shorter numbers"]),
        ("[" * 100_000, "p.json", ["nested too deeply"]),
        ("[1, 2]", "p", ["the document is a list of 2 items", "a mapping"]),
        ("", "p.yaml", ["the document is empty (null)", "a mapping"]),
        ("name: [1\nx: 2", "p.yaml", ["p.yaml: line 2", "not valid YAML"]),
        ("name: x\nname: y", "p.yaml", ["line 2", "'name' appears twice"]),
        ("1: x", "p.yaml", ["has the key 1, which is not text", "quotes"]),
        ("? [a]\n: x", "p.yaml", ["not valid YAML"]),
        ("a: !!python/object/apply:os.system [id]", "p.yaml", ["not valid YAML", "line 1"]),
        ("format: 2024-99-99", "p.yaml", ["format", "2024-99-99"]),
        ("a: \x00", "p.yaml", ["not valid YAML", "correct it"]),
        ("format: .nan", "p.yaml", ["format is nan"]),
    ],
)
def test_a_text_that_is_no_document_is_refused_with_the_place(text, name_hint, words):
    with pytest.raises(InvalidProblem) as caught:
        problem_from_text(text, name_hint=name_hint)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 400
    for word in words:
        assert word in message


def test_yaml_numbers_that_are_not_finite_are_refused(document):
    text = yaml.safe_dump(document).replace("token_bytes: 2", "token_bytes: .inf")
    with pytest.raises(InvalidProblem, match=r"model.token_bytes is inf; it must be a finite"):
        problem_from_text(text, name_hint="p.yaml")


def test_a_plan_survives_writing_and_reading(plan):
    text = json.dumps(plan_to_dict(plan), allow_nan=False)
    assert plan_from_text(text, name_hint="plan.json") == plan


def test_a_plan_file_has_the_published_keys(plan):
    document = plan_to_dict(plan)
    assert document["format"] == "helixweb.plan/1"
    assert document["placement"] == {"n0": [0, 2], "n1": [2, 4]}
    assert document["flow_tokens_per_s"] == pytest.approx(8.0)
    assert document["upper_bound_tokens_per_s"] == pytest.approx(8.0)
    assert document["hops"] == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("format",), "helixweb.problem/1", ["format", "'helixweb.plan/1'"]),
        (("placement", "n0"), [0], ["placement.n0 is a list of 1 items", "[first, end]"]),
        (("placement", "n0"), [2, 2], ["placement.n0 is [2, 2]", "first < end <= 4"]),
        (("placement", "n0"), [0, 5], ["placement.n0 is [0, 5]", "first < end <= 4"]),
        (("placement", "n0"), [0.5, 2], ["placement.n0[0] is 0.5", "whole number"]),
        (("partial_inference",), 1, ["partial_inference is 1", "true or false"]),
        (("routing_weights", "source", "n0"), -1, ["routing_weights.source.n0 is -1"]),
        (("flow", "edges", 0, "target"), REMOVED, ["flow.edges[0].target is missing"]),
        (("flow", "min_cut", "nodes"), [3], ["flow.min_cut.nodes[0] is 3", "text"]),
        (("flow", "min_cut", "edges"), ["ab"], ["flow.min_cut.edges[0] is the text 'ab'", "pair"]),
        (("extra",), 1, ["extra is not a key"]),
    ],
)
def test_a_wrong_value_in_a_plan_is_named(plan, path, value, words):
    with pytest.raises(InvalidProblem) as caught:
        plan_from_dict(changed(plan_to_dict(plan), path, value))
    for word in words:
        assert word in str(caught.value)


def test_published_placements_are_read_by_name():
    text = json.dumps({"swarm": {"layers": {"a": [0, 2]}, "max_flow_tokens_per_s": 5}})
    published = published_placements_from_text(text, name_hint="x.json", num_layers=2)
    assert published["swarm"].max_flow_tokens_per_s == 5.0
    assert published["swarm"].placement.as_lists() == {"a": [0, 2]}


def test_a_published_placement_beyond_the_model_is_refused():
    text = json.dumps({"swarm": {"layers": {"a": [0, 2]}, "max_flow_tokens_per_s": 5}})
    with pytest.raises(InvalidProblem, match=r"x.json: swarm.layers.a is \[0, 2\].*end <= 1"):
        published_placements_from_text(text, name_hint="x.json", num_layers=1)


def test_shared_bandwidth_and_the_prices_it_sets_survive_writing_and_reading():
    shared = egress("wan", "here", "n0", tokens_per_s=2.0, scope="nic")
    problem = sharing(tiny_problem([[9.0, 8.0], [9.0, 8.0]], num_layers=4), shared)
    assert problem_from_dict(json.loads(json.dumps(problem_to_dict(problem)))) == problem
    plan = compute_plan(
        problem,
        options=PlanOptions(objective="flow"),
        progress=lambda _: None,
        cancel=NeverCancelled(),
    )
    assert plan.flow.min_cut.prices
    assert plan.flow.shared
    assert plan_from_dict(json.loads(json.dumps(plan_to_dict(plan)))) == plan


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"direction": "up"}, ["network.shared[0].direction", "'up'", "egress, ingress"]),
        ({"scope": "rack"}, ["network.shared[0].scope", "'rack'", "region, nic"]),
        ({"members": "n0"}, ["network.shared[0].members", "a list"]),
        ({"members": ["z"]}, ["member 'z' is neither a node nor a region"]),
        ({"bandwidth_bytes_per_s": 0}, ["network.shared[0].bandwidth_bytes_per_s is 0"]),
        ({"speed": 1}, ["network.shared[0].speed is not a key"]),
    ],
)
def test_broken_shared_bandwidth_is_named_with_its_path(document, change, words):
    shared = {
        "name": "wan",
        "members": ["r"],
        "direction": "egress",
        "bandwidth_bytes_per_s": 1e6,
        "scope": "region",
    }
    document["network"]["shared"] = [shared | change]
    with pytest.raises(InvalidProblem) as caught:
        problem_from_dict(document)
    for word in words:
        assert word in str(caught.value)
