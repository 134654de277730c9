import copy

import pytest

from planner.domain.errors import InvalidProblem
from planner.domain.serving_policy import ServingPolicy
from planner.serialization import plan_from_dict, plan_to_dict

PERCENTILES = {"p50_s": 0.5, "p95_s": 1.0, "p99_s": 2.0}
# As the first version that forecast wrote it.
FIRST_WITH_FORECAST = {
    "format": "helixweb.plan/1",
    "problem_name": "two",
    "model_name": "m",
    "num_layers": 4,
    "partial_inference": True,
    "flow_tokens_per_s": 8.0,
    "upper_bound_tokens_per_s": 8.0,
    "hops": 1.0,
    "placer": "milp",
    "solver": "highs",
    "stop_reason": "optimal",
    "elapsed_s": 0.5,
    "placement": {"n0": [0, 4]},
    "routing_weights": {"source": {"n0": 8.0}, "n0": {"sink": 8.0}},
    "flow": {
        "edges": [],
        "nodes": {"n0": {"capacity_tokens_per_s": 8.0, "flow_tokens_per_s": 8.0}},
        "min_cut": {"nodes": ["n0"], "edges": [], "capacity_tokens_per_s": 8.0},
    },
    "forecast": {
        "objective": "decode",
        "value": 4.0,
        "timing": "measured",
        "policy": {
            "prompt_chunk_tokens": 250,
            "decode_cap_divisor": 4,
            "decode_cap_floor": 16,
            "published_batch_limits": False,
            "messages": "grouped",
            "transmission": "decode_first",
            "decode_lane_share": 0.3,
            "piece_bytes": 65536.0,
            "starvation_limit": None,
            "kv_high_water": 0.85,
            "step_overhead_s": 0.0,
        },
        "mean_prompt_tokens": 100.0,
        "mean_output_tokens": 50.0,
        "estimated": {
            "decode_tokens_per_s": 4.0,
            "ttft_s": 1.0,
            "tpot_s": 0.2,
            "requests_in_flight": 3.0,
        },
        "simulated": {
            "seeds": [0, 1],
            "requests_per_s": None,
            "window_s": 60.0,
            "decode_tokens_per_s": 3.5,
            "prompt_tokens_per_s": 7.0,
            "ttft": PERCENTILES,
            "itl": PERCENTILES,
            "tpot": PERCENTILES,
            "e2e": PERCENTILES,
            "requests_in_flight": 3.0,
            "utilisation_mean": 0.7,
        },
    },
}


def test_a_plan_from_before_there_were_forecasts_is_read():
    document = copy.deepcopy(FIRST_WITH_FORECAST)
    del document["forecast"]
    assert plan_from_dict(document).forecast is None


def test_what_older_forecasts_do_not_tell_of_is_as_it_was_then():
    forecast = plan_from_dict(FIRST_WITH_FORECAST).forecast
    assert forecast.policy == ServingPolicy(
        prompt_chunk_tokens=250,
        decode_cap_divisor=4,
        measured_micro_batches=None,
        published_batch_limits=False,
        messages="grouped",
        transmission="decode_first",
        return_path="coordinator",
    )
    assert forecast.simulated.simulated_share == 1.0
    assert forecast.simulated.decode_tokens_per_s == 3.5


def test_an_older_plan_written_anew_says_what_it_left_out():
    plan = plan_from_dict(FIRST_WITH_FORECAST)
    document = plan_to_dict(plan)
    assert document["forecast"]["policy"]["return_path"] == "coordinator"
    assert document["forecast"]["policy"]["measured_micro_batches"] is None
    assert document["forecast"]["simulated"]["simulated_share"] == 1.0
    assert plan_from_dict(document) == plan


def test_a_key_that_forecasts_always_had_is_missed():
    document = copy.deepcopy(FIRST_WITH_FORECAST)
    del document["forecast"]["policy"]["messages"]
    with pytest.raises(InvalidProblem, match=r"forecast.policy.messages is missing; add it"):
        plan_from_dict(document)
