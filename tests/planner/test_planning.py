import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_problems import all_placements, problems, tiny_problem

from planner.capacity import ModelDoesNotFit
from planner.domain.cluster import COORDINATOR, SINK, SOURCE
from planner.feasibility import ModelOutOfReach
from planner.flow_check import check_flow
from planner.max_flow import max_flow
from planner.placers.base import PLACERS, InvalidOptions, NeverCancelled
from planner.placers.board import NO_SOLVER
from planner.placers.petals import place_petals
from planner.placers.separate_pipelines import place_separate_pipelines
from planner.placers.swarm import place_swarm
from planner.plan_options import PlanOptions
from planner.planning import NoPlacementFound, compute_plan
from tests.examples import examples

# The best of all placements splits unevenly, overlaps, and none of the baselines finds it.
UNEVEN = tiny_problem([[100.0, 60.0, 30.0], [50.0, 24.0], [50.0, 24.0], [30.0, 10.0]], num_layers=4)


@pytest.fixture(scope="module")
def best_of_uneven():
    return best_flow_of_all_placements(UNEVEN, partial_inference=True)


class Cancelled:
    def is_cancelled(self):
        return True


def best_flow_of_all_placements(problem, *, partial_inference):
    return max(
        max_flow(problem, placed, partial_inference=partial_inference).value_tokens_per_s
        for placed in all_placements(problem)
    )


def plan_of(problem, *, progress=lambda _: None, cancel=None, **options):
    return compute_plan(
        problem,
        options=PlanOptions(
            **{"objective": "flow", "time_limit_s": 20.0, "solver": "highs", **options}
        ),
        progress=progress,
        cancel=cancel or NeverCancelled(),
    )


@settings(max_examples=examples(8))
@given(problem=problems(max_nodes=3), partial_inference=st.booleans())
def test_a_plan_lies_between_the_best_baseline_and_its_bound(problem, partial_inference):
    baselines = [place(problem) for place in (place_separate_pipelines, place_swarm, place_petals)]
    best_baseline = max(
        (
            max_flow(problem, placed, partial_inference=partial_inference).value_tokens_per_s
            for placed in baselines
            if placed is not None
        ),
        default=0.0,
    )
    best = best_flow_of_all_placements(problem, partial_inference=partial_inference)
    try:
        plan = plan_of(problem, partial_inference=partial_inference)
    except (NoPlacementFound, ModelDoesNotFit):
        assert best_baseline <= 0
        return
    check_flow(plan.flow)
    assert plan.flow.value_tokens_per_s >= best_baseline
    assert plan.flow.value_tokens_per_s <= best * (1 + 1e-6)
    assert plan.upper_bound_tokens_per_s >= best * (1 - 1e-4)


def test_the_milp_improves_on_the_baselines_to_the_best_of_all_placements(best_of_uneven):
    plan = plan_of(UNEVEN, placer="milp", relative_gap=0.0)
    assert plan.placer == "milp"
    assert plan.solver == "highs"
    assert plan.flow.value_tokens_per_s == pytest.approx(best_of_uneven, rel=1e-6)


def test_routing_weights_and_hops_come_from_the_plans_flow():
    plan = plan_of(UNEVEN)
    assert sum(plan.routing_weights[SOURCE].values()) == pytest.approx(plan.flow.value_tokens_per_s)
    into_sink = sum(targets.get(SINK, 0.0) for targets in plan.routing_weights.values())
    assert into_sink == pytest.approx(plan.flow.value_tokens_per_s)
    assert 1 <= plan.hops <= len(plan.placement.layers)


def test_without_time_to_search_a_plan_for_flow_is_not_below_any_simple_placement():
    problem = tiny_problem([[100.0], [100.0], [100.0, 60.0, 40.0]], num_layers=4)
    plan = plan_of(problem, time_limit_s=1e-6)
    assert plan.placer == "separate_pipelines_plus"
    assert plan.flow.value_tokens_per_s == pytest.approx(60.0)


def test_progress_never_goes_backwards():
    seen = []
    plan = plan_of(UNEVEN, progress=seen.append, relative_gap=0.0)
    assert seen[-1].placer == plan.placer
    for before, after in itertools.pairwise(seen):
        assert after.elapsed_s >= before.elapsed_s
        assert after.flow_tokens_per_s >= before.flow_tokens_per_s
        assert after.upper_bound_tokens_per_s <= before.upper_bound_tokens_per_s
    assert seen[-1].flow_tokens_per_s == pytest.approx(plan.flow.value_tokens_per_s)
    assert seen[-1].placement == plan.placement


def test_a_baseline_at_the_bound_ends_the_search_before_the_milp():
    problem = tiny_problem([[9.0, 8.0], [9.0, 8.0]], num_layers=4)
    plan = plan_of(problem)
    assert plan.stop_reason == "bound reached"
    assert plan.solver == NO_SOLVER
    assert plan.placer == "separate_pipelines"
    assert plan.gap == pytest.approx(0.0, abs=1e-6)


def test_a_cancelled_search_keeps_the_best_so_far():
    plan = plan_of(UNEVEN, cancel=Cancelled())
    assert plan.stop_reason == "cancelled"
    assert plan.flow.value_tokens_per_s > 0


def test_a_clock_that_leaves_no_time_for_the_milp_leaves_the_best_baseline():
    ticks = itertools.count(0, 100)
    plan = compute_plan(
        UNEVEN,
        options=PlanOptions(objective="flow", time_limit_s=1.0),
        progress=lambda _: None,
        cancel=NeverCancelled(),
        clock=lambda: float(next(ticks)),
    )
    assert plan.stop_reason == "time limit"
    assert plan.placer in ("swarm", "petals", "separate_pipelines")


@pytest.mark.parametrize("placer", PLACERS)
def test_no_placer_falls_below_the_best_baseline_or_above_the_best_placement(
    placer, best_of_uneven
):
    plan = plan_of(UNEVEN, placer=placer)
    flows = [
        max_flow(UNEVEN, place(UNEVEN), partial_inference=True).value_tokens_per_s
        for place in (place_swarm, place_petals)
    ]
    assert max(flows) <= plan.flow.value_tokens_per_s <= best_of_uneven * (1 + 1e-6)


@pytest.mark.parametrize("warm_start", ["none", "best", "swarm", "petals"])
def test_every_warm_start_leads_to_the_optimum(warm_start, best_of_uneven):
    plan = plan_of(UNEVEN, warm_start=warm_start, relative_gap=0.0)
    assert plan.flow.value_tokens_per_s == pytest.approx(best_of_uneven, rel=1e-6)


def test_a_warm_start_that_carries_no_flow_is_refused():
    with pytest.raises(InvalidOptions, match="'separate_pipelines', whose placement carries no"):
        plan_of(
            tiny_problem([[100.0, 60.0, 30.0], [50.0, 24.0], [45.0, 20.0]], num_layers=4),
            warm_start="separate_pipelines",
        )


def test_without_partial_inference_an_overlapping_baseline_does_not_count():
    problem = tiny_problem([[9.0, 8.0, 7.0], [6.0, 5.0, 4.0]], num_layers=4)
    plan = plan_of(problem, partial_inference=False, relative_gap=0.0)
    best = best_flow_of_all_placements(problem, partial_inference=False)
    assert plan.flow.value_tokens_per_s == pytest.approx(best, rel=1e-6)
    assert plan.partial_inference is False


def test_a_cluster_that_cannot_hold_the_model_is_refused():
    with pytest.raises(ModelDoesNotFit, match="can hold 2 layers but model 'tiny-model' has 5"):
        plan_of(tiny_problem([[9.0], [9.0]], num_layers=5))


def test_a_cluster_without_links_has_no_plan_and_says_what_to_check():
    problem = tiny_problem([[9.0, 8.0], [6.0]], num_layers=3)
    unlinked = replace(problem, cluster=replace(problem.cluster, region_links=()))
    with pytest.raises(ModelOutOfReach, match="no link leads from the coordinator to any node"):
        plan_of(unlinked)


def test_only_a_way_in_and_no_way_out_has_no_plan():
    problem = tiny_problem([[9.0, 8.0]], num_layers=2)
    one_way = replace(
        problem,
        cluster=replace(
            problem.cluster,
            coordinator_region="away",
            links=(replace(problem.cluster.region_links[0], source=COORDINATOR, target="n0"),),
        ),
    )
    with pytest.raises(ModelOutOfReach, match="no link leads from any node back"):
        plan_of(one_way)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"time_limit_s": 0}, "time_limit_s is 0"),
        ({"time_limit_s": -1.0}, "time_limit_s is -1;"),
        ({"time_limit_s": math.inf}, "time_limit_s is inf"),
        ({"time_limit_s": math.nan}, "time_limit_s is nan"),
        ({"relative_gap": 1.5}, r"relative_gap is 1\.5"),
        ({"prune_degree": 0.0}, "prune_degree is 0;"),
        ({"solver": "cplex"}, "solver is 'cplex'"),
        ({"placer": "oracle"}, "placer is 'oracle'; use one of: auto, milp, stage-patterns"),
        ({"warm_start": "milp"}, "warm_start is 'milp'; use one of: best, none, separate_pip"),
        ({"warm_start": "petals", "baselines": ("swarm",)}, "warm_start is 'petals'"),
        ({"baselines": ("helix",)}, "baselines has 'helix'; use names of: separate_pipelines"),
        ({"seed": -3}, "seed is -3"),
    ],
)
def test_options_out_of_range_are_refused(values, message):
    with pytest.raises(InvalidOptions, match=message):
        PlanOptions(**values)
