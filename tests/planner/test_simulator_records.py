"""What became of each request: times, way, waits at its stages."""

import pytest
from simulated_clusters import LATENCY_S, NO_COPY, TOKEN_BYTES, at, cluster_problem, placed, run

from planner.simulator.simulate import SimulationOptions


def records_of(*arguments, **options):
    records = []
    forecast = run(*arguments, **options, on_request=records.append)
    assert forecast.requests_finished == len(records)
    return records


def test_a_request_waits_at_a_stage_for_the_step_before():
    problem = cluster_problem([(1.0, 0.1), (0.1, 0.1)], num_layers=2)
    first, second = records_of(
        problem, placed((0, 1), (1, 2)), at(0.0, 0.1, prompt_tokens=100, output_tokens=1)
    )
    assert (first.number, second.number) == (0, 1)
    assert (first.arrival_s, second.arrival_s) == (0.0, 0.1)
    assert first.waits_s == pytest.approx((0.0, 0.0))
    assert second.waits_s == pytest.approx((0.9, 0.0))
    assert second.admitted_s == 0.1
    # One token: its first is its last. It comes a step of both stages after the first one's.
    assert second.first_token_s == second.finished_s == pytest.approx(first.finished_s + 1.0)
    assert [stage.node for stage in second.pipeline.stages] == ["n0", "n1"]
    assert second.attempts == 1


def test_decodes_that_wait_count_too():
    problem = cluster_problem([(0.1, 0.01)], num_layers=1)
    short, long = records_of(
        problem, placed((0, 1)), at(0.0, 0.0, prompt_tokens=100, output_tokens=2)
    )
    # The second prompt runs when the first has, and the first's decode waits for that.
    way_s = 2 * LATENCY_S + 2 * TOKEN_BYTES / 1e6
    assert short.waits_s == pytest.approx((0.1 - way_s,), abs=1e-4)
    assert long.waits_s[0] >= 0.1 - 1e-9


def test_a_preempted_request_tells_of_its_last_attempt():
    problem = cluster_problem([(0.1, 0.01)], num_layers=1, kv_token_layers=48)
    first, again = records_of(
        problem,
        placed((0, 1)),
        at(0.0, 0.0, prompt_tokens=10, output_tokens=30),
        options=SimulationOptions(
            warm_up_s=0.0, window_s=1e3, host_copy_s_per_byte=0.0, fixed_output_tokens=1
        ),
    )
    assert (first.attempts, again.attempts) == (1, 2)
    assert again.finished_s > first.finished_s
    assert again.first_token_s < first.finished_s
    assert again.admitted_s == 0.0


def test_nothing_is_measured_unasked():
    """Both give the same forecast; waits cost time, so nobody keeps them for nothing."""
    problem = cluster_problem([(0.1, 0.01)], num_layers=1)
    demand = {"prompt_tokens": 100, "output_tokens": 3}
    records = []
    told = run(problem, placed((0, 1)), at(0.0, 0.0, **demand), on_request=records.append)
    assert told == run(problem, placed((0, 1)), at(0.0, 0.0, **demand), options=NO_COPY)
