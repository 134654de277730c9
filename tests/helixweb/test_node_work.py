"""What a node's steps should have taken follows from its profile's times, whatever the batches."""

from dataclasses import replace

import pytest

from helixweb.monitoring.node_work import Steps, StepTimes, parts_s
from planner.domain.layer_times import LayerTimes
from planner.domain.placement import LayerRange
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
    found = sum(parts_s(steps, TIMES, layers=3, has_head=True, mean_prompt_tokens=51.0))
    assert found == pytest.approx(3 * seconds)


def test_what_each_step_takes_is_counted_once_and_what_is_between_steps_is_not() -> None:
    times = replace(TIMES, prompt_step_s=0.5, decode_step_s=0.2, head_s=0.1, handling_s=7.0)
    steps = Steps(steps=10, prompt_tokens=51, decode_tokens=10)
    layers_s = 3 * (10 * 0.010 + 0.002)
    for has_head, head_s in ((True, 0.1), (False, 0.0)):
        found = sum(parts_s(steps, times, layers=3, has_head=has_head, mean_prompt_tokens=51.0))
        assert found == pytest.approx(layers_s + 10 * (0.2 + head_s) + 0.3)
    prompts = replace(steps, decode_tokens=0)
    found = sum(parts_s(prompts, times, layers=3, has_head=True, mean_prompt_tokens=51.0))
    assert found == pytest.approx(3 * 0.002 + 0.6)


def test_a_node_goes_by_its_own_profile() -> None:
    problem = generated_cluster(num_nodes=8, num_regions=1, seed=1)
    steps = Steps(steps=100, prompt_tokens=0, decode_tokens=3200)
    times = StepTimes(problem)
    for node in problem.cluster.nodes:
        expected = 2 * 100 * layer_times_of(problem, node.name).decode_s(32.0)
        held = LayerRange(first=3, end=5)
        assert times.expected_s(node.name, steps, layers=held) == pytest.approx((expected, 0.0))
    none = Steps(steps=0, prompt_tokens=0, decode_tokens=0)
    held = LayerRange(first=0, end=2)
    assert times.expected_s(problem.cluster.nodes[0].name, none, layers=held) is None


def test_the_node_with_the_models_last_layer_has_its_head() -> None:
    problem = generated_cluster(num_nodes=8, num_regions=1, seed=1)
    name = problem.cluster.nodes[0].name
    profile = problem.profile_of(name)
    with_head = replace(profile, layer_times=replace(TIMES, head_s=0.5))
    profiles = {**problem.compute_profiles, profile.name: with_head}
    times = StepTimes(replace(problem, compute_profiles=profiles))
    steps = Steps(steps=10, prompt_tokens=0, decode_tokens=10)
    last = problem.model.num_layers
    middle_s, end_s = (
        times.expected_s(name, steps, layers=LayerRange(first=end - 2, end=end))
        for end in (last - 1, last)
    )
    assert end_s == pytest.approx((middle_s[0] + 10 * 0.5, 0.0))
