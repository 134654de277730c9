"""Layer times: measured ones as they are, derived ones by taking T_j apart again."""

import json
from dataclasses import replace

import pytest
from tiny_problems import tiny_problem

from planner.domain.errors import InvalidProblem
from planner.domain.layer_times import BatchLimits, LayerTimes
from planner.domain.problem import Problem, Workload
from planner.timing import (
    attach_layer_times,
    derived_layer_times,
    layer_times_of,
    timing_source,
)

MEASURED = LayerTimes(prompt=((250.0, 0.01),), decode=((2.0, 0.005),))
TABLE = """model,gpu,phase,batch_tokens,time_ms_per_layer
tiny-model,test,prompt,0,0.0
tiny-model,test,prompt,250,10.0
tiny-model,test,decode,2,5.0
tiny-model,test,decode,0,0
another,test,prompt,250,1.0
"""
LIMITS = {
    "tiny-model": {
        "test": {
            "max_layers": 3,
            "prompt_max_requests": {"1": 3, "2": 2, "3": 1},
            "decode_max_tokens": {"1": 90, "2": 80, "3": 70},
        }
    }
}


def with_table(token_s: float, base_s: float) -> Problem:
    """One kind of node whose T_j says what the docstring's formula makes of these times."""
    kv = (8e6, 7e6, 6e6, 5e6)
    prompt, output = 750.0, 250.0
    first_s = 1e-4  # guess of 1 / T_1 that the loop makes exact
    for _ in range(200):
        round_trip_s = 4 * first_s
        batches = [0.3 * room * first_s / ((prompt + output) * round_trip_s) for room in kv]
        seconds = [token_s + base_s * output / (prompt + output) / batch for batch in batches]
        first_s = seconds[0]
    problem = tiny_problem([[1 / (j * s) for j, s in enumerate(seconds, start=1)]], num_layers=4)
    profiles = {
        name: replace(profile, kv_capacity_token_layers=kv)
        for name, profile in problem.compute_profiles.items()
    }
    workload = Workload(mean_prompt_tokens=prompt, mean_output_tokens=output)
    return replace(problem, compute_profiles=profiles, workload=workload)


def attached(table: str, limits: object = None) -> Problem:
    return attach_layer_times(
        tiny_problem([[9.0, 4.0, 2.0]], num_layers=3),
        layer_times_csv=table,
        batch_limits_json=None if limits is None else json.dumps(limits),
        name_hint="times.csv",
    )


@pytest.mark.parametrize(("token_s", "base_s"), [(3e-5, 7e-3), (1e-5, 1.4e-3), (6e-5, 5e-4)])
def test_derived_times_are_those_that_the_throughput_was_made_of(token_s, base_s):
    times = layer_times_of(with_table(token_s, base_s), "n0")
    assert times.prompt_s(750) == pytest.approx(750 * token_s, rel=1e-6)
    assert times.decode_s(1) == pytest.approx(base_s + token_s, rel=1e-6)
    assert times.decode_s(100) == pytest.approx(base_s + 100 * token_s, rel=1e-6)


@pytest.mark.parametrize(
    "speeds", [[5.0], [5.0, 4.0], [9.0, 1.0, 5.0], [9.0, 0.0, 3.0], [2.0, 1.0, 2 / 3]]
)
def test_any_throughput_gives_times_above_zero_that_rise_with_tokens(speeds):
    problem = tiny_problem([speeds], num_layers=3)
    times = layer_times_of(problem, "n0")
    assert 0 < times.prompt_s(10) < times.prompt_s(20)
    assert 0 < times.decode_s(1) < times.decode_s(50)


def test_measured_times_come_first_and_are_told_from_derived_ones():
    problem = tiny_problem([[5.0], [4.0]], num_layers=2)
    assert timing_source(problem) == "derived"
    first, second = problem.compute_profiles
    profiles = dict(problem.compute_profiles)
    profiles[first] = replace(profiles[first], layer_times=MEASURED)
    partly = replace(problem, compute_profiles=profiles)
    assert layer_times_of(partly, "n0") == MEASURED
    assert layer_times_of(partly, "n1") == derived_layer_times(partly, profiles[second])
    assert timing_source(partly) == "derived"
    profiles[second] = replace(profiles[second], layer_times=MEASURED)
    assert timing_source(replace(problem, compute_profiles=profiles)) == "measured"


def test_a_profile_without_speed_has_no_layer_times():
    problem = tiny_problem([[0.0], [5.0]], num_layers=1)
    with pytest.raises(InvalidProblem, match=r"no number of layers .* give it layer_times"):
        layer_times_of(problem, "n0")


def test_tables_and_limits_are_attached_by_model_and_gpu():
    (profile,) = attached(TABLE, LIMITS).compute_profiles.values()
    assert profile.layer_times == MEASURED
    assert profile.batch_limits == BatchLimits(
        prompt_max_requests=(3, 2, 1), decode_max_tokens=(90, 80, 70)
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("phase,", "step,", "lacks the column 'phase'"),
        ("prompt,250,10.0", "warmup,250,10.0", "row 3: phase is 'warmup'"),
        ("prompt,250,10.0", "prompt,many,10.0", "row 3: batch_tokens is 'many'"),
        ("prompt,250,10.0", "prompt,250,-1", "row 3: 250 tokens take -1 ms"),
        ("tiny-model,test,prompt", "tiny-model,A100,prompt", "GPU '[A-Za-z0-9]+' has no"),
        ("tiny-model,test", "tiny-model,A100", "no rows for model 'tiny-model' on GPU 'test'"),
        ("prompt,0,0.0", "prompt,250,3", "GPU 'test': .* each once"),
    ],
)
def test_a_bad_table_is_refused_naming_the_row(old, new, message):
    with pytest.raises(InvalidProblem, match=f"times.csv.*{message}"):
        attached(TABLE.replace(old, new))


def test_limits_with_a_gap_are_refused_naming_the_layers():
    limits = json.loads(json.dumps(LIMITS))
    del limits["tiny-model"]["test"]["decode_max_tokens"]["2"]
    with pytest.raises(InvalidProblem, match=r"decode_max_tokens\.2 is missing"):
        attached(TABLE, limits)
