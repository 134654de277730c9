"""Problem and plan files of somebody who means harm: refused soon, and nothing of theirs runs."""

from pathlib import Path
from typing import Any

import pytest
from tiny_problems import tiny_problem

from planner.domain.errors import InvalidProblem
from planner.placers.base import NeverCancelled
from planner.plan_options import PlanOptions
from planner.planning import compute_plan
from planner.serialization import problem_from_dict, problem_from_text, problem_to_dict

DOUBLED = 200
# Each list or mapping stands twice in the next: 2**200 of them, if anybody looked at all.
LISTS = "a0: &a0 [x]\n" + "".join(
    f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, DOUBLED)
)
MERGES = "b0: &b0 {x: 1}\n" + "".join(
    f"b{n}: &b{n}\n  <<: [*b{n - 1}, *b{n - 1}]\n" for n in range(1, DOUBLED)
)
DEEP = 20_000


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{LISTS}format: helixweb.problem/1\nname: *a{DOUBLED - 1}\n", "aliases"),
        (
            "format: helixweb.problem/1\nname: &n [*n, *n]\n",
            "stands for nothing that was read before it",
        ),
        (MERGES, "merge keys"),
        ("[" * DEEP, "nested too deeply"),
        ('{"a":' * DEEP, "nested too deeply"),
        ("format: " + "9" * 100_000, "not valid YAML"),
        ('{"format": ' + "9" * 100_000 + "}", "write shorter numbers"),
        ("format: !!binary |\n  R0lGODlh\n", "not valid YAML"),
    ],
    ids=["lists", "itself", "merges", "deep list", "deep object", "number", "json number", "bytes"],
)
def test_a_file_that_would_grow_without_end_is_refused(text: str, said: str) -> None:
    hint = "x.json" if text.startswith(('{"', "[[")) else "x.yaml"
    with pytest.raises(InvalidProblem) as refused:
        problem_from_text(text, name_hint=hint)
    assert said in str(refused.value)
    assert len(str(refused.value)) < 600


@pytest.mark.parametrize(
    "tag",
    ["!!python/object/apply:os.system", "!!python/object/new:os.system", "!!python/name:os.system"],
)
def test_a_file_makes_no_objects_of_python(tag: str, tmp_path: Path) -> None:
    proof = tmp_path / "it-ran"
    with pytest.raises(InvalidProblem, match="not valid YAML"):
        problem_from_text(f"{tag} ['touch {proof}']\n", name_hint="x.yaml")
    assert not proof.exists()


FAST = "compute_profiles.fast."


def document_with(path: str, value: object) -> Any:
    """A sound problem of two nodes of one kind with this value at the path."""
    document: Any = problem_to_dict(tiny_problem([[90.0, 50.0]] * 2, num_layers=4))
    (profile,) = document["compute_profiles"].values()
    profile |= {
        "layer_times": {"prompt": [[1.0, 0.001]], "decode": [[1.0, 0.001]]},
        "batch_limits": {"prompt_max_requests": [4, 4], "decode_max_tokens": [4, 4]},
        "price_per_hour": 1.0,
    }
    document["compute_profiles"] = {"fast": profile}
    for node in document["nodes"]:
        node["compute_profile"] = "fast"
    inside = document
    *before, last = [int(key) if key.isdecimal() else key for key in path.split(".")]
    for key in before:
        inside = inside[key]
    inside[last] = value
    return document


@pytest.mark.parametrize(
    ("path", "value", "limit"),
    [
        ("model.num_layers", 10**9, "10000"),
        ("model.num_heads", 10**30, "1e+09"),
        ("model.activation_bytes_per_token", 1e300, "1e+15"),
        ("model.activation_bytes_per_token", 1e-300, "0.001"),
        ("model.token_bytes", 1e300, "1e+15"),
        ("model.bytes_per_layer", 1e300, "1e+15"),
        ("workload.mean_prompt_tokens", 1e300, "1e+09"),
        ("workload.mean_output_tokens", 1e-300, "0.001"),
        (FAST + "vram_bytes", 1e300, "1e+15"),
        (FAST + "price_per_hour", 1e300, "1e+12"),
        (FAST + "tokens_per_s.0", 1e10, "1e+09"),
        (FAST + "kv_capacity_token_layers.1", 1e300, "1e+15"),
        (FAST + "layer_times.prompt", [[1, 0.001], [1e10, 1.0]], "262144"),
        (FAST + "layer_times.decode", [[1, 0.001], [1e300, 1.0]], "262144"),
        (FAST + "layer_times.decode", [[1e-300, 1.0]], "0.001"),
        (FAST + "layer_times.decode", [[1, 1e300]], "1e+09"),
        (FAST + "layer_times.hop_s", 1e300, "3600"),
        (FAST + "batch_limits.decode_max_tokens.0", 10**30, "1e+09"),
        ("nodes.0.gpus", 10**30, "1024"),
        ("nodes.0.price_per_hour", 1e300, "1e+12"),
        ("network.region_pairs.0.bandwidth_bytes_per_s", 1e300, "1e+15"),
        ("network.region_pairs.0.latency_s", 1e300, "3600"),
    ],
)
def test_a_number_beyond_all_machines_is_refused_with_the_limit(
    path: str, value: object, limit: str
) -> None:
    sound = document_with("name", "sound")
    assert problem_from_dict(sound).name == "sound"
    with pytest.raises(InvalidProblem) as refused:
        problem_from_dict(document_with(path, value))
    key = next(key for key in reversed(path.split(".")) if not key.isdecimal())
    assert key in str(refused.value)
    worst = value[-1] if isinstance(value, list) else [value]
    assert any(f"{number:g}" in str(refused.value) for number in worst)
    assert limit in str(refused.value)


def test_nodes_that_are_too_fast_only_together_are_refused() -> None:
    with pytest.raises(InvalidProblem, match=r"all 5 nodes together is 5e\+09; .* 4.29497e\+09"):
        tiny_problem([[1e9]] * 5, num_layers=2)


@pytest.mark.parametrize("objective", ["flow", "decode"])
def test_the_fastest_nodes_that_are_allowed_get_a_plan(objective: Any) -> None:
    plan = compute_plan(
        tiny_problem([[1e9, 1e9]] * 4, num_layers=2),
        options=PlanOptions(objective=objective, time_limit_s=1.0),
        progress=lambda _: None,
        cancel=NeverCancelled(),
    )
    assert plan.flow.value_tokens_per_s > 0
