"""The MILP placer against trying everything, and what it promises besides the optimum."""

import math
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from searched import searched
from tiny_problems import all_placements, placed_problems, placement, problems, tiny_problem

from planner.domain.errors import InvalidPlacement
from planner.max_flow import max_flow
from planner.placers.base import InvalidOptions, SearchOptions
from planner.placers.milp import search_milp
from tests.examples import examples

both_solvers = pytest.mark.parametrize("solver", ["gurobi", "highs"])


def search(
    problem,
    *,
    solver="highs",
    partial_inference=True,
    start=None,
    progress=lambda incumbent: None,
    cancel=None,
    time_limit_s=60.0,
    **milp_options,
):
    milp_options.setdefault("relative_gap", 1e-6)
    return searched(
        search_milp,
        problem,
        solver=solver,
        time_limit_s=time_limit_s,
        partial_inference=partial_inference,
        start=start,
        progress=progress,
        cancel=cancel,
        **milp_options,
    )


def flow_of(problem, placed, *, partial_inference=True):
    if placed is None:
        return 0.0
    return max_flow(problem, placed, partial_inference=partial_inference).value_tokens_per_s


def best_by_trying_everything(problem, *, partial_inference):
    return max(
        flow_of(problem, placed, partial_inference=partial_inference)
        for placed in all_placements(problem)
    )


def can_hold_model(problem):
    held = sum(problem.profile_of(node.name).max_layers for node in problem.cluster.nodes)
    return held >= problem.model.num_layers


def large_problem():
    """18 unequal nodes, 40 layers, some slow links: no solver finishes it."""
    speeds = [[900.0 * (1 + i % 5) / j**1.3 for j in range(1, 4 + i % 5)] for i in range(18)]
    slow = {(f"n{i}", f"n{(i * 7 + 3) % 18}"): 150.0 + i for i in range(18) if (i * 6 + 3) % 18}
    return tiny_problem(speeds, num_layers=40, link_tokens_per_s=slow)


def chain_through(problem):
    """All nodes in a row, each holding as much as it can until the model ends."""
    layers, first = {}, 0
    for node in problem.cluster.nodes:
        end = min(first + problem.profile_of(node.name).max_layers, problem.model.num_layers)
        if end > first:
            layers[node.name] = (first, end)
        first = end
    return placement(**layers)


@both_solvers
@settings(max_examples=examples(12), derandomize=True)
@given(problem=problems(max_nodes=3).filter(can_hold_model), partial_inference=st.booleans())
def test_the_optimum_is_that_of_trying_everything(solver, problem, partial_inference):
    best = best_by_trying_everything(problem, partial_inference=partial_inference)
    result = search(problem, solver=solver, partial_inference=partial_inference)
    found = flow_of(problem, result.placement, partial_inference=partial_inference)
    assert found == pytest.approx(best, rel=1e-5, abs=1e-3)
    assert result.upper_bound_tokens_per_s >= best * (1 - 1e-5) - 1e-3
    assert result.stop_reason in ("optimal", "bound reached")


def test_both_solvers_find_the_same_optimum_on_a_larger_cluster_with_binding_links():
    speeds = [[90.0, 40.0], [60.0, 28.0], [60.0, 28.0], [30.0, 14.0]]
    links = {("n0", "n1"): 11.0, ("n1", "n2"): 7.0, ("n2", "n3"): 5.0, ("n0", "n3"): 13.0}
    problem = tiny_problem(speeds, num_layers=4, link_tokens_per_s=links)
    for partial_inference in (True, False):
        best = best_by_trying_everything(problem, partial_inference=partial_inference)
        for solver in ("gurobi", "highs"):
            result = search(problem, solver=solver, partial_inference=partial_inference)
            found = flow_of(problem, result.placement, partial_inference=partial_inference)
            assert found == pytest.approx(best, rel=1e-5)


@both_solvers
@settings(max_examples=examples(10), derandomize=True)
@given(
    placed=placed_problems(max_nodes=3).filter(lambda pair: can_hold_model(pair[0])),
    partial_inference=st.booleans(),
    prune_degree=st.sampled_from([None, 0.5, 1.0]),
)
def test_the_result_is_never_below_the_warm_start(solver, placed, partial_inference, prune_degree):
    problem, start = placed
    result = search(
        problem,
        solver=solver,
        start=start,
        partial_inference=partial_inference,
        prune_degree=prune_degree,
    )
    assert flow_of(problem, result.placement, partial_inference=partial_inference) >= flow_of(
        problem, start, partial_inference=partial_inference
    )


@both_solvers
def test_a_warm_start_survives_a_search_with_no_time_to_improve_it(solver):
    problem = large_problem()
    start = chain_through(problem)
    result = search(problem, solver=solver, start=start, prune_degree=1.0, time_limit_s=0.05)
    assert flow_of(problem, result.placement) >= flow_of(problem, start) > 0
    assert result.stop_reason in ("time limit", "heuristic")


@both_solvers
def test_incumbents_rise_and_bounds_fall(solver):
    speeds = [[90.0, 40.0, 25.0], [60.0, 28.0], [60.0, 28.0], [30.0, 14.0, 9.0]]
    problem = tiny_problem(
        speeds, num_layers=5, link_tokens_per_s={("n0", "n1"): 11.0, ("n0", "n2"): 3.0}
    )
    seen = []
    result = search(problem, solver=solver, progress=seen.append)
    flows = [incumbent.flow_tokens_per_s for incumbent in seen]
    bounds = [incumbent.upper_bound_tokens_per_s for incumbent in seen]
    assert flows == sorted(flows)
    assert flows == [flow_of(problem, incumbent.placement) for incumbent in seen]
    assert flows[-1] == flow_of(problem, result.placement)
    assert {incumbent.placer for incumbent in seen} == {"milp"}
    assert bounds == sorted(bounds, reverse=True)


@both_solvers
def test_a_cancelled_search_returns_its_best_so_far(solver):
    class CancelledAfterThirdLook:
        looks = 0

        def is_cancelled(self):
            self.looks += 1
            return self.looks > 3

    problem = large_problem()
    start = chain_through(problem)
    cancel = CancelledAfterThirdLook()
    result = search(problem, solver=solver, start=start, cancel=cancel, prune_degree=3.0)
    assert result.stop_reason == "cancelled"
    assert cancel.looks == 4  # not asked again, and nothing else ended the search
    assert flow_of(problem, result.placement) >= flow_of(problem, start)


def test_the_time_limit_ends_a_search_by_the_clock_it_is_given():
    """Ten seconds pass at every look at this clock, so the second look is past the limit."""
    times = iter(range(0, 10_000, 10))
    problem = large_problem()
    result = searched(
        search_milp,
        problem,
        solver="highs",
        time_limit_s=15.0,
        start=chain_through(problem),
        clock=lambda: float(next(times)),
    )
    assert result.stop_reason == "time limit"


def test_a_start_at_the_known_bound_needs_no_solver():
    problem = large_problem()
    start = chain_through(problem)
    result = search(problem, start=start, known_upper_bound_tokens_per_s=flow_of(problem, start))
    assert result.stop_reason == "bound reached"
    assert result.placement == start
    assert result.solver == "none"


def test_a_flow_within_the_gap_of_the_known_bound_ends_the_search():
    problem = tiny_problem([[8.0, 4.0]] * 2, num_layers=2)
    result = search(problem, known_upper_bound_tokens_per_s=8.4, relative_gap=0.1)
    assert flow_of(problem, result.placement) == pytest.approx(8.0)
    assert result.stop_reason in ("bound reached", "optimal")


def test_a_bound_over_pruned_links_is_not_passed_on_as_proof():
    problem = tiny_problem([[8.0, 4.0], [8.0, 4.0], [5.0, 2.0]], num_layers=3)
    pruned = search(problem, prune_degree=1.0)
    best = best_by_trying_everything(problem, partial_inference=True)
    assert pruned.upper_bound_tokens_per_s >= best * (1 - 1e-6)
    assert pruned.stop_reason in ("heuristic", "bound reached")


def test_a_cluster_without_a_way_back_to_the_coordinator_has_no_placement():
    problem = tiny_problem([[8.0], [8.0]], num_layers=2)
    one_way = tuple(
        replace(problem.cluster.region_links[0], source=source, target=target)
        for source, target in [("coordinator", "n0"), ("n0", "n1")]
    )
    problem = replace(problem, cluster=replace(problem.cluster, region_links=(), links=one_way))
    result = search(problem)
    assert result.placement is None
    assert result.upper_bound_tokens_per_s == pytest.approx(0.0, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["auto", "gurobi"])
def test_gurobi_runs_while_the_model_fits_its_licence_and_highs_beyond_and_the_result_says_so(
    solver,
):
    """24 nodes make 1 849 rows without partial inference, 2 401 with it; 2 000 are free."""
    problem = tiny_problem([[9.0, 5.0, 3.0, 2.0]] * 24, num_layers=60)
    result = search(problem, solver=solver, time_limit_s=2.0)
    assert result.solver == "gurobi" or re.fullmatch(
        r"gurobi, then highs \(gurobi: .*size-limited.*\)|highs \(gurobi: .*licence.*\)",
        result.solver,
    )


def test_partial_inference_is_used_where_only_it_reaches_the_optimum():
    """Of 3 layers each node holds 2: only with an overlap do both nodes make a pipeline."""
    problem = tiny_problem([[0.0, 8.0]] * 2, num_layers=3)
    assert search(problem, partial_inference=False).placement is None
    result = search(problem, partial_inference=True)
    assert flow_of(problem, result.placement) == pytest.approx(8.0)


def test_a_start_that_does_not_fit_the_problem_is_refused():
    problem = tiny_problem([[8.0], [8.0]], num_layers=2)
    with pytest.raises(InvalidPlacement, match="memory for 1"):
        search(problem, start=placement(n0=(0, 2)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"solver": "cplex"}, "solver is 'cplex'; use one of: auto, gurobi, highs"),
        ({"prune_degree": 0.0}, "prune_degree is 0;"),
        ({"prune_degree": math.nan}, "prune_degree is nan"),
        ({"relative_gap": 1.0}, "relative_gap is 1.0"),
        ({"relative_gap": -0.1}, "relative_gap is -0.1"),
    ],
)
def test_an_option_out_of_range_is_named(options, message):
    with pytest.raises(InvalidOptions, match=message):
        SearchOptions(**options)
