"""What is said of streams that ran while a plan was changed."""

import pytest

from benchmarks.recovery.steady_streams import Asked, share_above, steady_tpot_s


def asked(*came_s: float) -> Asked:
    return Asked(began_s=0.0, came_s=came_s)


def test_the_time_per_token_leaves_out_the_first_and_a_request_of_one_token() -> None:
    assert asked(5.0, 5.5, 6.0).tpot_s == pytest.approx(0.5)
    assert asked(5.0).tpot_s is None
    assert steady_tpot_s([asked(5.0), asked(5.0, 5.1), asked(1.0, 1.2), asked(0.0, 9.0)]) == (
        pytest.approx(0.2)
    )


def test_a_request_waits_for_its_first_token_too() -> None:
    assert asked(5.0, 5.5).longest_wait_s == 5.0
    assert asked(0.1, 0.2, 3.2).longest_wait_s == pytest.approx(3.0)


def test_a_second_is_slow_by_the_mean_gap_of_all_streams_or_when_no_token_came() -> None:
    quick = asked(0.0, 0.1, 0.2, 2.0, 2.1)  # the gap of 1.8 s ends in the third second
    other = asked(2.2, 2.3)
    assert share_above([quick], bar_s=0.2, begin_s=0.0, end_s=3.0) == pytest.approx(2 / 3)
    assert share_above([quick, other], bar_s=0.7, begin_s=0.0, end_s=3.0) == pytest.approx(1 / 3)
    assert share_above([quick], bar_s=2.0, begin_s=2.0, end_s=3.0) == 0.0


def test_the_part_of_a_second_at_the_end_is_left_out() -> None:
    assert share_above([asked(0.0, 0.1)], bar_s=1.0, begin_s=0.0, end_s=1.9) == 0.0
