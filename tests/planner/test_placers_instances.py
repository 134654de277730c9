"""Degrees: what fits, what is refused and why, and Algorithm 1 against a written-out count."""

from dataclasses import replace

import pytest

from planner.latency_model import Fit, LatencyModel
from planner.placers.instances import (
    Machine,
    WholeModel,
    degree_estimates,
    kv_room_tokens,
    static_tokens_per_s,
)
from planner.workload.request import Lengths

MODEL = WholeModel(num_layers=4, weights_bytes=8e9, query_heads=12, kv_heads=4, head_size=64)
LONGEST = Lengths(prompt_tokens=2000, output_tokens=1000)
SAMPLE = [Lengths(prompt_tokens=100, output_tokens=50)] * 20


def latency(base_s: float, *, per_token_s: float = 1e-4) -> LatencyModel:
    fit = Fit(
        parameters=(per_token_s, 1e-4, 0.0, base_s),
    )
    return LatencyModel(prefill=fit, decode=fit)


def machine(*, gpus: int = 12, memory_bytes: float = 10e9, without: int = 0) -> Machine:
    degrees = [t for t in range(1, gpus + 1) if gpus % t == 0 and t != without]
    return Machine(
        gpus=gpus,
        gpu_memory_bytes=memory_bytes,
        latency={t: latency(0.03 / t) for t in degrees},
    )


def test_room_is_what_weights_and_the_engine_leave_by_kv_heads_of_which_each_gpu_has_one() -> None:
    box = replace(machine(), usage=0.9, reserved_bytes=1e9)
    one_token = 2 * 4 * 4 * 64 * 2
    assert kv_room_tokens(box, MODEL, degree=2) == int(9e9 // one_token)
    one_token_of_12 = 2 * 4 * 12 * 64 * 2  # each of twelve GPUs has a head of its own
    room = kv_room_tokens(box, MODEL, degree=12)
    assert room == int(99e9 // one_token_of_12)


def test_degrees_that_cannot_be_are_last_and_say_why() -> None:
    found = {
        one.degree: one
        for one in degree_estimates(machine(without=2), MODEL, SAMPLE, longest=LONGEST)
    }
    assert set(found) == {1, 2, 3, 4, 6, 12}
    assert "less than the longest request's 3000" in found[1].refused
    assert "no latency model of degree 2" in found[2].refused
    assert "4 KV heads neither divide by 3" in found[3].refused
    assert "4 KV heads neither divide by 6" in found[6].refused
    assert [found[t].refused for t in (4, 12)] == ["", ""]
    order = degree_estimates(machine(without=2), MODEL, SAMPLE, longest=LONGEST)
    assert [one.degree in (4, 12) for one in order] == [True, True, False, False, False, False]
    assert order[0].tokens_per_s >= order[1].tokens_per_s > 0


def test_heads_that_do_not_divide_are_refused() -> None:
    odd = WholeModel(num_layers=4, weights_bytes=1e9, query_heads=6, kv_heads=2, head_size=64)
    found = {
        one.degree: one for one in degree_estimates(machine(gpus=4), odd, SAMPLE, longest=LONGEST)
    }
    assert "6 attention heads do not divide by 4" in found[4].refused
    assert found[2].refused == ""


def test_a_machine_too_small_for_the_model_is_refused_every_degree() -> None:
    found = degree_estimates(machine(gpus=2, memory_bytes=1e9), MODEL, SAMPLE, longest=LONGEST)
    assert {one.degree for one in found} == {1, 2}
    assert all(one.refused.startswith("its KV room of 0 tokens") for one in found)


def test_the_estimate_is_batches_in_order_each_as_long_as_its_longest_answer() -> None:
    requests = [
        Lengths(prompt_tokens=10, output_tokens=5),
        Lengths(prompt_tokens=20, output_tokens=8),
        Lengths(prompt_tokens=30, output_tokens=2),  # 60 + 3 * 8 > 80: the next batch
        Lengths(prompt_tokens=5, output_tokens=2),
    ]
    model = latency(0.01)
    expected_s = model.batch_s(batch=2, input_tokens=20, output_tokens=8) + model.batch_s(
        batch=2, input_tokens=30, output_tokens=2
    )
    found = static_tokens_per_s(model, requests, room_tokens=80, most_requests=9)
    assert found == pytest.approx(82 / expected_s)
    singly = static_tokens_per_s(model, requests, room_tokens=80, most_requests=1)
    one_by_one_s = sum(
        model.batch_s(batch=1, input_tokens=one.prompt_tokens, output_tokens=one.output_tokens)
        for one in requests
    )
    assert singly == pytest.approx(82 / one_by_one_s)


def test_a_request_that_fits_nowhere_is_named() -> None:
    with pytest.raises(ValueError, match="100 input and 50 output tokens does not fit"):
        static_tokens_per_s(latency(0.01), SAMPLE, room_tokens=149, most_requests=9)
    with pytest.raises(ValueError, match="no requests"):
        degree_estimates(machine(), MODEL, [], longest=LONGEST)


def test_more_instances_win_where_a_batch_costs_by_its_size_and_fewer_where_by_its_steps() -> None:
    def with_base(base_s: float, per_token_s: float) -> Machine:
        return Machine(
            gpus=4,
            gpu_memory_bytes=30e9,
            latency={t: latency(base_s / t, per_token_s=per_token_s / t**0.5) for t in (1, 2, 4)},
        )

    by_size = degree_estimates(with_base(1e-6, 1e-3), MODEL, SAMPLE, longest=LONGEST)[0]
    assert by_size.degree == 1
    assert by_size.instances == 4
    tight = Lengths(prompt_tokens=100, output_tokens=50)
    little = replace(with_base(0.1, 1e-9), reserved_bytes=18.99e9)  # t = 1: a few requests only
    by_steps = degree_estimates(little, MODEL, SAMPLE * 20, longest=tight)[0]
    assert by_steps.degree > 1
