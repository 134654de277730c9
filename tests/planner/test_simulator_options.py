"""What is simulated, from when to when, and what is refused."""

import dataclasses

import pytest
from simulated_clusters import (
    NO_COPY,
    at,
    cluster_problem,
    placed,
    run,
)

from planner.domain.errors import InvalidPlacement
from planner.simulator.simulate import InvalidSimulation, SimulationOptions
from planner.workload.request import InvalidWorkload


def test_figures_are_those_of_the_window_without_the_warm_up():
    problem = cluster_problem([(0.01, 0.001)], num_layers=1)
    times = (*[0.0] * 5, *[50.0] * 3)
    forecast = run(
        problem,
        placed((0, 1)),
        at(*times, prompt_tokens=10, output_tokens=4),
        options=dataclasses.replace(NO_COPY, warm_up_s=40.0, window_s=30.0),
    )
    assert forecast.requests_finished == forecast.ttft.count == 3


def test_what_cannot_be_simulated_is_refused_with_the_reason():
    problem = cluster_problem([(0.01, 0.001), (0.01, 0.001)], num_layers=2, kv_token_layers=100)
    placement = placed((0, 1), (1, 2))
    with pytest.raises(InvalidWorkload, match="200 prompt and 10 predicted output tokens"):
        run(problem, placement, at(0.0, prompt_tokens=200, output_tokens=1))
    with pytest.raises(InvalidWorkload, match="arrives at 1 s after one at 2 s"):
        run(problem, placement, at(2.0, 1.0, prompt_tokens=1, output_tokens=1))
    with pytest.raises(InvalidSimulation, match="within the warm-up of 50 s"):
        run(
            problem,
            placement,
            at(0.0, prompt_tokens=1, output_tokens=1),
            options=dataclasses.replace(NO_COPY, warm_up_s=50.0),
        )
    with pytest.raises(InvalidPlacement, match="not a node"):
        run(problem, placed((0, 1), (1, 2), (0, 1)), at(0.0, prompt_tokens=1, output_tokens=1))
    unlinked = dataclasses.replace(
        problem, cluster=dataclasses.replace(problem.cluster, region_links=())
    )
    with pytest.raises(InvalidPlacement, match="no link"):
        run(unlinked, placement, at(0.0, prompt_tokens=1, output_tokens=1))


@pytest.mark.parametrize(
    "changes",
    [
        {"window_s": 0.0},
        {"window_s": float("inf")},
        {"warm_up_s": float("inf")},
        {"warm_up_s": -1.0},
        {"page_tokens": 0},
        {"fixed_output_tokens": 0},
        {"host_copy_s_per_byte": float("nan")},
    ],
)
def test_options_outside_their_range_are_refused(changes):
    with pytest.raises(InvalidSimulation, match=next(iter(changes))):
        SimulationOptions(**changes)
