"""Instances in plans: who runs them, which degree, what was weighed, and what is refused."""

import itertools
from dataclasses import replace

import pytest

from planner.domain.errors import InvalidProblem
from planner.domain.instance import InstanceTimes, PlanMethod
from planner.domain.layer_times import LayerTimes
from planner.domain.placement import LayerRange
from planner.domain.plan import Incumbent, Plan
from planner.domain.problem import Problem
from planner.domain.rules import PlacementRules
from planner.placers.base import InvalidOptions, NeverCancelled
from planner.placers.instances import NoDegree
from planner.plan_instances import plan_by_method
from planner.plan_options import PlanOptions
from planner.serialization import (
    plan_from_dict,
    plan_to_dict,
    problem_from_dict,
    problem_to_dict,
)
from tests.planner.tiny_problems import tiny_problem

BIG, SMALL = (900.0, 450.0, 300.0, 200.0), (600.0, 300.0)
STEP = LayerTimes(prompt=((1000.0, 0.1),), decode=((1.0, 0.001), (100.0, 0.01)))


def problem(*speeds: tuple[float, ...], gpus: int = 1, heads: int | None = 8) -> Problem:
    """Four layers; nodes with four speeds hold them all. A layer more costs room for 200 tokens."""
    made = tiny_problem(speeds, num_layers=4)
    profiles = {
        name: replace(
            profile,
            layer_times=STEP,
            kv_capacity_token_layers=tuple(
                2000.0 - 200.0 * layers for layers in range(1, profile.max_layers + 1)
            ),
        )
        for name, profile in made.compute_profiles.items()
    }
    nodes = tuple(
        replace(node, gpus=gpus if "200" in node.compute_profile else 1)
        for node in made.cluster.nodes
    )
    return replace(
        made,
        model=replace(made.model, num_heads=heads, num_kv_heads=None if heads is None else 4),
        compute_profiles=profiles,
        cluster=replace(made.cluster, nodes=nodes),
    )


def planned(
    of: Problem,
    method: PlanMethod,
    *,
    tensor_parallel: int | None = None,
    rules: PlacementRules | None = None,
) -> Plan:
    reported: list[Incumbent] = []
    return plan_by_method(
        of,
        options=PlanOptions(
            method=method,
            time_limit_s=1.0,
            tensor_parallel=tensor_parallel,
            rules=rules or PlacementRules(),
        ),
        progress=reported.append,
        cancel=NeverCancelled(),
    )


@pytest.mark.parametrize("method", ["instances", "mixed"])
def test_reports_never_go_back_in_time(method: PlanMethod) -> None:
    ticks, heard = itertools.count(), list[Incumbent]()
    plan = plan_by_method(
        problem(BIG, SMALL, SMALL),
        options=PlanOptions(method=method, time_limit_s=1.0),
        progress=heard.append,
        cancel=NeverCancelled(),
        clock=lambda: next(ticks) * 0.02,
    )
    seconds = [0.0, *(incumbent.elapsed_s for incumbent in heard), plan.elapsed_s]
    assert seconds == sorted(seconds)
    assert seconds[1] > 0


def test_every_machine_that_holds_the_model_is_an_instance_by_itself() -> None:
    plan = planned(problem(BIG, BIG, SMALL), "instances")
    assert [one.name for one in plan.instances] == ["n0", "n1"]
    assert plan.placement.as_lists() == {"n0": [0, 4], "n1": [0, 4]}
    assert plan.placement.components == (frozenset({"n0"}), frozenset({"n1"}))
    assert plan.flow.value_tokens_per_s == pytest.approx(400)
    assert plan.method_choice is not None
    (weighed,) = plan.method_choice.candidates
    assert "n2" in weighed.remark
    assert weighed.output_tokens_per_s == pytest.approx(
        sum(one.output_tokens_per_s for one in plan.instances)
    )


@pytest.mark.parametrize("last_s", [0.1, 0.099])
def test_a_profile_whose_largest_prompts_were_quicker_by_chance_is_planned_with(
    last_s: float,
) -> None:
    of = problem(BIG)
    times = replace(STEP, prompt=((1000.0, 0.1), (1500.0, last_s)))
    profiles = {name: replace(one, layer_times=times) for name, one in of.compute_profiles.items()}
    (instance,) = planned(replace(of, compute_profiles=profiles), "instances").instances
    per_token, *_ = instance.times.prefill  # 0.1 s for 1000 to 1500 tokens of each of four layers
    assert 4 * 0.1 / 1500 * 0.9 < per_token < 4 * 0.1 / 1000


def test_mixed_puts_pipelines_over_the_rest_and_says_what_each_way_would_write() -> None:
    plan = planned(problem(BIG, SMALL, SMALL), "mixed")
    assert plan.method_choice is not None
    by_method = {one.method: one.output_tokens_per_s for one in plan.method_choice.candidates}
    assert by_method.keys() == {"instances", "pipelines", "instances and pipelines"}
    values = {method: value or 0.0 for method, value in by_method.items()}
    assert values["instances and pipelines"] > values["instances"] > 0
    assert plan.method_choice.chosen == max(values, key=lambda method: values[method])
    if plan.method_choice.chosen == "instances and pipelines":
        assert plan.placement.layers.keys() == {"n0", "n1", "n2"}
        assert [one.node for one in plan.instances] == ["n0"]


def test_mixed_without_a_machine_for_the_whole_model_is_pipelines_and_says_why() -> None:
    plan = planned(problem(SMALL, SMALL), "mixed")
    assert plan.instances == ()
    assert plan.method_choice is not None
    assert plan.method_choice.chosen == "pipelines"
    assert "no machine holds all 4 layers" in plan.method_choice.candidates[1].remark


def test_mixed_whose_rest_cannot_hold_the_model_says_so_of_that_way() -> None:
    plan = planned(problem(BIG, SMALL), "mixed")
    assert plan.method_choice is not None
    beside = {one.method: one for one in plan.method_choice.candidates}["instances and pipelines"]
    assert beside.output_tokens_per_s is None
    assert beside.remark


def test_excluded_nodes_run_no_instance() -> None:
    rules = PlacementRules(excluded_nodes=frozenset({"n0"}))
    plan = planned(problem(BIG, BIG), "instances", rules=rules)
    assert [one.node for one in plan.instances] == ["n1"]


def test_nodes_that_are_pinned_to_layers_stand_beside_instances() -> None:
    pinned = {"n1": LayerRange(first=0, end=2), "n2": LayerRange(first=2, end=4)}
    rules = PlacementRules(pinned=pinned)
    plan = planned(problem(BIG, SMALL, SMALL), "mixed", rules=rules)
    assert plan.method_choice is not None
    assert plan.method_choice.chosen == "instances and pipelines"
    assert plan.placement.layers == {**pinned, "n0": LayerRange(first=0, end=4)}
    alone = planned(problem(BIG, SMALL, SMALL), "instances", rules=rules).method_choice
    assert alone is not None
    assert alone.candidates[0].remark.endswith("pinned to a part of the model: n1, n2")


def test_when_every_node_is_pinned_to_a_part_no_instance_can_be() -> None:
    pinned = {"n0": LayerRange(first=0, end=2), "n1": LayerRange(first=2, end=4)}
    rules = PlacementRules(pinned=pinned)
    with pytest.raises(NoDegree, match="every node is pinned to a part of the model"):
        planned(problem(BIG, SMALL), "instances", rules=rules)
    assert planned(problem(BIG, SMALL), "mixed", rules=rules).placement.layers == pinned


def with_room_of_one_token(of: Problem, node: str) -> Problem:
    """Its KV room holds no request."""
    name = "scarce"
    profile = of.profile_of(node)
    scarce = replace(profile, name=name, kv_capacity_token_layers=(1600.0, 1100.0, 600.0, 4.0))
    nodes = tuple(
        replace(one, compute_profile=name) if one.name == node else one for one in of.cluster.nodes
    )
    return replace(
        of,
        compute_profiles={**of.compute_profiles, name: scarce},
        cluster=replace(of.cluster, nodes=nodes),
    )


def test_a_machine_without_room_for_requests_keeps_no_other_from_its_instance() -> None:
    of = with_room_of_one_token(problem(BIG, BIG), "n1")
    plan = planned(of, "instances")
    assert [one.name for one in plan.instances] == ["n0"]
    assert plan.method_choice is not None
    assert plan.method_choice.candidates[0].remark.endswith(": n1")
    refused = {rank.nodes: rank.refused for rank in plan.method_choice.degrees}
    assert "its KV room of 1 tokens is less than" in refused["n1",]
    with pytest.raises(NoDegree, match="node 'n1' holds the model, but"):
        planned(of, "instances", tensor_parallel=1)


def test_a_model_that_no_machine_holds_is_refused_with_the_most_that_one_does() -> None:
    with pytest.raises(NoDegree, match=r"no machine holds all 4 layers.*the most is 2, on node"):
        planned(problem(SMALL, SMALL), "instances")


def with_times(of: Problem, times: dict[int, float]) -> Problem:
    """Seconds of a step, by degree."""
    given = {
        degree: InstanceTimes(prefill=(1e-5, 0, 0, base), decode=(0, 1e-5, 0, base))
        for degree, base in times.items()
    }
    profiles = {
        name: replace(profile, instance_times=given)
        for name, profile in of.compute_profiles.items()
    }
    return replace(of, compute_profiles=profiles)


def test_the_degree_that_writes_most_is_taken_and_both_rankings_are_kept() -> None:
    # two at once are 1.9 times as fast as one: two instances of degree 2 are worth more than one
    # of degree 4 that is 3 times as fast
    four = with_times(problem(BIG, gpus=4), {1: 0.1, 2: 0.1 / 1.9, 4: 0.1 / 3})
    plan = planned(four, "instances")
    assert plan.method_choice is not None
    ranks = plan.method_choice.degrees
    assert {rank.degree for rank in ranks} == {1, 2, 4}
    best = ranks[0]
    assert best.static_tokens_per_s > 0
    assert best.simulated_tokens_per_s > best.output_tokens_per_s > 0
    assert len(plan.instances) == 4 // best.degree
    gpus = [gpu for one in plan.instances for gpu in one.gpus]
    assert gpus == [0, 1, 2, 3]
    assert {one.tensor_parallel for one in plan.instances} == {best.degree}


def test_a_degree_that_divides_neither_gpus_nor_heads_is_refused() -> None:
    four = with_times(problem(BIG, gpus=4), {1: 0.1, 2: 0.05, 4: 0.03})
    with pytest.raises(NoDegree, match="degree of 3 does not divide the 4 GPUs of node 'n0'"):
        planned(four, "instances", tensor_parallel=3)
    odd = replace(four, model=replace(four.model, num_heads=6))
    with pytest.raises(NoDegree, match="degree of 4 does not divide the 6 attention heads"):
        planned(odd, "instances", tensor_parallel=4)


def test_a_degree_that_nobody_measured_is_refused_with_the_remedy() -> None:
    with pytest.raises(NoDegree, match="no latency model of degree 2"):
        planned(problem(BIG, gpus=4), "instances", tensor_parallel=2)


def test_degrees_above_one_need_the_number_of_heads() -> None:
    four = with_times(problem(BIG, gpus=2, heads=None), {1: 0.1, 2: 0.05})
    with pytest.raises(NoDegree, match="give its num_heads"):
        planned(four, "instances", tensor_parallel=2)


def test_instances_are_compared_by_decode_throughput_only() -> None:
    with pytest.raises(InvalidOptions, match="choose the objective 'decode'"):
        PlanOptions(method="instances", objective="flow")


def test_plan_and_problem_files_keep_what_is_known_of_instances() -> None:
    of = with_times(problem(BIG, SMALL, gpus=2), {1: 0.1, 2: 0.06})
    assert problem_from_dict(problem_to_dict(of)) == of
    plan = planned(of, "instances")
    assert plan_from_dict(plan_to_dict(plan)) == plan


def test_a_plan_whose_instance_holds_less_than_all_layers_is_refused() -> None:
    document = plan_to_dict(planned(problem(BIG, BIG), "instances"))
    document["placement"] = {"n0": [0, 4], "n1": [0, 3]}
    with pytest.raises(InvalidProblem, match=r"'n1' is on node 'n1', which holds \[0, 3\) of 4"):
        plan_from_dict(document)


def test_a_plan_that_gives_a_gpu_to_two_instances_is_refused() -> None:
    of = with_times(problem(BIG, gpus=2), {1: 0.01, 2: 0.06})
    document = plan_to_dict(planned(of, "instances"))
    first, second = document["instances"]
    document["instances"] = [first, {**second, "gpus": first["gpus"]}]
    with pytest.raises(InvalidProblem, match=r"both have GPU 0 of node 'n0'; give each its own"):
        plan_from_dict(document)
