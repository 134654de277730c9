"""MoLink §4.2, three cases: when the next decode leaves, from profile and from what was seen."""

import pytest

from runtime.transport.decode_forecast import DecodeForecast


def test_nothing_is_forecast_of_what_was_never_seen() -> None:
    forecast = DecodeForecast()
    assert forecast.due_s(0.0) is None
    forecast.step_began(tokens=4, now_s=1.0)
    assert forecast.due_s(1.0) is None


def test_case_1_and_2_what_is_left_of_the_step_that_runs() -> None:
    forecast = DecodeForecast(lambda tokens: 0.01 * tokens)
    forecast.step_began(tokens=4, now_s=1.0)
    assert forecast.due_s(1.0) == pytest.approx(1.04)
    assert forecast.due_s(1.03) == pytest.approx(1.04)
    assert forecast.due_s(1.2) == pytest.approx(1.2)  # late: at any moment


def test_case_3_the_earliest_batch_comes_round_again() -> None:
    forecast = DecodeForecast()
    for moment_s in (1.0, 1.2):
        forecast.step_began(tokens=4, now_s=moment_s - 0.1)
        forecast.step_ended(now_s=moment_s, cycle_s=0.5)
    assert forecast.due_s(1.3) == pytest.approx(1.5)
    assert forecast.due_s(1.6) == pytest.approx(1.7)
    assert forecast.due_s(1.8) is None


def test_a_profile_is_corrected_by_what_steps_take() -> None:
    forecast = DecodeForecast(lambda tokens: 0.01 * tokens)
    for step in range(50):
        forecast.step_began(tokens=4, now_s=float(step))
        forecast.step_ended(now_s=step + 0.08, cycle_s=None)  # twice as long as profiled
    forecast.step_began(tokens=8, now_s=100.0)
    assert forecast.due_s(100.0) == pytest.approx(100.16)


def test_a_step_of_prompts_alone_is_no_decode() -> None:
    forecast = DecodeForecast(lambda tokens: 0.01)
    forecast.step_began(tokens=0, now_s=1.0)
    assert forecast.due_s(1.0) is None
    forecast.step_ended(now_s=2.0, cycle_s=None)
    assert forecast.due_s(2.0) is None
