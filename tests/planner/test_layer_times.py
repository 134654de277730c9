"""Layer times: interpolation, and what they refuse."""

import dataclasses

import pytest

from planner.domain.errors import InvalidProblem
from planner.domain.layer_times import BatchLimits, LayerTimes
from planner.placers.base import NeverCancelled
from planner.plan_options import PlanOptions
from planner.planning import compute_plan
from planner.simulator.translation import step_times
from tests.planner.tiny_problems import tiny_problem

TIMES = LayerTimes(prompt=((250, 0.001), (500, 0.003)), decode=((2, 0.001),))


def test_times_are_linear_from_nothing_between_points_and_beyond_the_last() -> None:
    assert TIMES.prompt_s(0) == 0
    assert TIMES.prompt_s(125) == pytest.approx(0.0005)
    assert TIMES.prompt_s(250) == pytest.approx(0.001)
    assert TIMES.prompt_s(375) == pytest.approx(0.002)
    assert TIMES.prompt_s(750) == pytest.approx(0.005)
    assert TIMES.decode_s(6) == pytest.approx(0.003)


def test_a_last_point_that_was_measured_too_short_makes_no_larger_batch_shorter() -> None:
    times = LayerTimes(prompt=((10, 0.01),), decode=((1, 0.004), (2, 0.003)))
    assert times.decode_s(1.5) == pytest.approx(0.0035)
    assert times.decode_s(1000) == pytest.approx(0.003)
    assert step_times(times, "decode").slope_s == 0.0


@pytest.mark.parametrize(
    ("prompt", "named"),
    [
        ((), "has no points"),
        (((0.0, 1.0),), r"\[0, 1\]"),
        (((1.0, -1.0),), r"\[1, -1\]"),
        (((2.0, 1.0), (2.0, 2.0)), "2 tokens after 2"),
    ],
)
def test_points_that_are_no_curve_are_refused(
    prompt: tuple[tuple[float, float], ...], named: str
) -> None:
    with pytest.raises(InvalidProblem, match=named):
        LayerTimes(prompt=prompt, decode=((1, 1),))


def test_a_batch_limit_below_one_is_refused() -> None:
    with pytest.raises(InvalidProblem, match="decode_max_tokens for 2 layers is 0"):
        BatchLimits(prompt_max_requests=(1, 1), decode_max_tokens=(3, 0))


def test_what_a_step_takes_beside_its_layers_is_dealt_to_as_many_as_are_held() -> None:
    times = LayerTimes(
        prompt=((10.0, 0.01),), decode=((1.0, 0.001),), prompt_step_s=0.004, decode_step_s=0.002
    )
    for layers in (1, 2, 8):
        held = times.held(layers, has_head=True)
        assert layers * held.decode_s(1) == pytest.approx(layers * 0.001 + 0.002)
        assert layers * held.prompt_s(10) == pytest.approx(layers * 0.01 + 0.004)
    plain = LayerTimes(prompt=((10.0, 0.01),), decode=((1.0, 0.001),))
    assert plain.held(3, has_head=True) is plain
    with pytest.raises(InvalidProblem, match="decode_step_s is -1"):
        LayerTimes(prompt=((10.0, 0.01),), decode=((1.0, 0.001),), decode_step_s=-1)


def test_handling_is_part_of_every_step_and_the_head_of_those_that_end_with_the_last_layer() -> (
    None
):
    times = LayerTimes(
        prompt=((10.0, 0.01),),
        decode=((1.0, 0.001),),
        prompt_step_s=0.004,
        decode_step_s=0.002,
        head_s=0.1,
        handling_s=0.03,
    )
    for has_head, beside_s in ((True, 0.13), (False, 0.03)):
        held = times.held(4, has_head=has_head)
        assert 4 * held.decode_s(1) == pytest.approx(4 * 0.001 + 0.002 + beside_s)
        assert 4 * held.prompt_s(10) == pytest.approx(4 * 0.01 + 0.004 + beside_s)
        assert times.shared_s(has_head=has_head) == pytest.approx(0.002 + beside_s)
    for key in ("head_s", "handling_s", "hop_s"):
        with pytest.raises(InvalidProblem, match=f"{key} is -1"):
            dataclasses.replace(times, **{key: -1.0})


def test_one_decode_is_charged_as_two_unless_one_was_measured() -> None:
    assert TIMES.least_decodes == 2
    assert LayerTimes(prompt=((1.0, 0.01),), decode=((1.0, 0.001),)).least_decodes == 1


def test_nodes_of_a_token_in_ten_seconds_get_a_plan_for_decode() -> None:
    """Their step of 1 000 tokens, to which estimates extend them, takes hours."""
    problem = tiny_problem([[0.1, 0.05], [0.1, 0.05]], num_layers=2)
    plan = compute_plan(
        problem,
        options=PlanOptions(time_limit_s=0.5, objective="decode"),
        progress=lambda _: None,
        cancel=NeverCancelled(),
    )
    assert plan.flow.value_tokens_per_s > 0
