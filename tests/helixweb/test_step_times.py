"""What a node's steps should have taken follows from its profile's times, whatever the batches."""

import pytest

from helixweb.monitoring.step_times import Steps, StepTimes, expected_busy_s
from planner.domain.layer_times import LayerTimes
from planner.generate import generated_cluster
from planner.timing import layer_times_of

TIMES = LayerTimes(
    prompt=((1.0, 0.001), (101.0, 0.003)), decode=((1.0, 0.010), (11.0, 0.020), (21.0, 0.060))
)


@pytest.mark.parametrize(
    ("steps", "seconds"),
    [
        (Steps(steps=10, prompt_tokens=0, decode_tokens=10), 10 * 0.010),
        (Steps(steps=10, prompt_tokens=0, decode_tokens=110), 10 * 0.020),
        (Steps(steps=10, prompt_tokens=0, decode_tokens=160), 10 * 0.040),
        (Steps(steps=10, prompt_tokens=0, decode_tokens=5), 5 * 0.010),
        (Steps(steps=4, prompt_tokens=204, decode_tokens=0), 4 * 0.002),
        (Steps(steps=10, prompt_tokens=51, decode_tokens=10), 10 * 0.010 + 0.002),
    ],
    ids=["one each", "eleven each", "sixteen each", "half without", "prompts", "both"],
)
def test_time_is_that_of_the_batches(steps: Steps, seconds: float) -> None:
    found = expected_busy_s(steps, TIMES, layers=3, mean_prompt_tokens=51.0)
    assert found == pytest.approx(3 * seconds)


def test_a_node_goes_by_its_own_profile() -> None:
    problem = generated_cluster(num_nodes=8, num_regions=1, seed=1)
    steps = Steps(steps=100, prompt_tokens=0, decode_tokens=3200)
    times = StepTimes(problem)
    for node in problem.cluster.nodes:
        expected = 2 * 100 * layer_times_of(problem, node.name).decode_s(32.0)
        assert times.expected_s(node.name, steps, layers=2) == pytest.approx(expected)
    none = Steps(steps=0, prompt_tokens=0, decode_tokens=0)
    assert times.expected_s(problem.cluster.nodes[0].name, none, layers=2) is None
