"""The parts of the paper tables that are arithmetic: rows, orders, curves, and methods' set-up."""

import csv
import dataclasses
import io
import json
from pathlib import Path

import pytest

from benchmarks.helix.instance import separate_pipeline, with_room_for
from benchmarks.helix.method import all_hops
from benchmarks.helix.progress_curve import curves_to_csv, read_trace
from benchmarks.helix.row import AS_PUBLISHED, DECODE, EQUAL_TERMS, Row, order_lines, orders_of
from benchmarks.helix.search_study import model_size, search_rows
from planner.domain.cluster import SOURCE
from planner.generate import generated_cluster
from planner.max_flow import max_flow
from planner.placers.swarm import place_swarm

FIGURES = Path(__file__).parents[2] / "benchmarks" / "helix" / "figures.json"


def row(method, *values, published=None, reading=AS_PUBLISHED, quantity=DECODE):
    return Row(
        figure=7,
        problem="cluster",
        reading=reading,
        quantity=quantity,
        method=method,
        values=values,
        published=published,
    )


def test_a_row_gives_the_mean_its_ratio_to_the_published_figure_and_the_seeds_spread():
    two_seeds = row("helix", 90.0, 110.0, published=50.0)
    assert (two_seeds.mean, two_seeds.ratio, two_seeds.spread) == (100.0, 2.0, 20.0)
    assert row("ours", 90.0).ratio is None


def test_an_order_names_the_pairs_that_ours_turns_round():
    rows = [
        row("helix", 100.0, published=98.0),
        row("pipelines", 120.0, published=62.0),
        row("swarm", 50.0, published=52.0),
        row("ours", 400.0),
    ]
    (order,) = orders_of(rows)
    assert order.published == ("helix", "pipelines", "swarm")
    assert order.ours == ("pipelines", "helix", "swarm")
    assert order.inverted == (("helix", "pipelines"),)
    (line,) = order_lines([order])
    assert "NOT the published order: pipelines above helix" in line


def test_published_figures_that_are_nearly_equal_have_no_order():
    rows = [row("swarm", 118.0, published=124.7), row("pipelines", 126.0, published=124.3)]
    (order,) = orders_of(rows)
    assert order.inverted == ()


def test_a_pair_that_seeds_do_not_tell_apart_is_undecided_and_not_turned_round():
    rows = [
        row("random", 84.0, 90.0, 86.0, published=87.4),
        row("shortest queue", 87.0, 89.0, 87.0, published=83.6),
        row("swarm", 94.0, 99.0, 96.0, published=81.7),
    ]
    (order,) = orders_of(rows)
    assert order.inverted == (("random", "swarm"), ("shortest queue", "swarm"))
    (undecided,) = order.undecided
    assert undecided.methods == ("shortest queue", "random")
    # Differences 3, -1 and 1: mean 1, standard error 2 / sqrt(3), of which 4.3 are 95 %.
    assert undecided.difference == pytest.approx(1.0)
    assert undecided.error == pytest.approx(4.3 * 2 / 3**0.5)
    (line,) = order_lines([order])
    assert "NOT the published order: swarm above random; swarm above shortest queue;" in line
    assert line.endswith(
        "undecided: shortest queue and random (difference 1.0, within 5.0 by 3 seeds)"
    )


def test_seeds_that_agree_decide_even_a_small_difference():
    """Each seed's lengths are easy or hard for both alike; what counts is how they differ."""
    rows = [
        row("random", 80.0, 90.0, 100.0, published=87.4),
        row("shortest queue", 79.0, 89.1, 98.9, published=83.6),
    ]
    (order,) = orders_of(rows)
    assert (order.inverted, order.undecided) == ((), ())
    (line,) = order_lines([order])
    assert line.endswith("the published order (random > shortest queue)")


def test_on_equal_terms_the_order_is_held_against_that_of_the_published_figures():
    rows = [
        row("helix", 100.0, published=98.0),
        row("pipelines", 70.0, published=62.0),
        row("helix", 109.0, reading=EQUAL_TERMS),
        row("pipelines", 121.0, reading=EQUAL_TERMS),
    ]
    as_published, equal = orders_of(rows)
    assert as_published.inverted == ()
    assert equal.inverted == (("helix", "pipelines"),)


def test_quantities_other_than_throughput_have_no_order():
    rows = [row(name, 1.0, published=1.0, quantity="latency s") for name in ("helix", "swarm")]
    assert list(orders_of(rows)) == []


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(
        "time_s,incumbent,best_bound\n0,-0.0,900\n5,120.5,400\n60,250.0,300\n600,250.0,251\n"
    )
    return read_trace(path, problem="cluster", name="pruned, no start")


def test_a_trace_tells_when_its_best_flow_came_and_when_it_was_proven(trace):
    assert trace.points[0].incumbent_tokens_per_s == 0.0
    assert (trace.best_tokens_per_s, trace.best_at_s) == (250.0, 60.0)
    assert (trace.bound_tokens_per_s, trace.proven_at_s) == (251.0, 600.0)


def test_a_trace_without_rows_is_refused(tmp_path):
    path = tmp_path / "empty.csv"
    path.write_text("time_s,incumbent,best_bound\n")
    with pytest.raises(ValueError, match=r"empty\.csv has no rows"):
        read_trace(path, problem="cluster", name="empty")


def test_curves_are_written_point_by_point(trace):
    rows = list(csv.DictReader(io.StringIO(curves_to_csv([trace]))))
    assert [float(each["incumbent"]) for each in rows] == [0.0, 120.5, 250.0, 250.0]
    assert {each["source"] for each in rows} == {"published trace"}


def test_our_searches_are_held_against_the_trace_of_the_same_name(trace):
    ours = dataclasses.replace(trace, source="our run", points=trace.points[:2])
    best, at, bound = search_rows(11, "cluster", [trace, ours])
    assert (best.values, best.published) == ((120.5,), 250.0)
    assert (at.values, at.published) == ((5.0,), 60.0)
    assert (bound.values, bound.published) == ((400.0,), 251.0)


def test_a_separate_pipeline_holds_all_layers_in_equal_stages_with_the_room_it_was_given():
    problem = generated_cluster(num_nodes=24, num_regions=1, seed=1)
    kind = problem.cluster.nodes[0].compute_profile
    most = problem.compute_profiles[kind].max_layers
    layers = problem.model.num_layers
    pipeline = separate_pipeline(
        problem,
        {
            "kinds": {kind: 1},
            "kv_token_layers": {str(layers): 5_000},
            "requests": 2,
            "online_share": 1,
        },
    )
    assert sum(len(held) for held in pipeline.placement.layers.values()) == layers
    roomy = with_room_for(problem, [pipeline]).compute_profiles[kind]
    assert roomy.max_layers == layers
    assert roomy.kv_capacity_token_layers[layers - 1] == 5_000
    before = problem.compute_profiles[kind]
    assert roomy.tokens_per_s[:most] == before.tokens_per_s[:most]


def test_a_pipeline_of_more_nodes_than_the_cluster_has_is_refused():
    problem = generated_cluster(num_nodes=24, num_regions=1, seed=1)
    kind = problem.cluster.nodes[0].compute_profile
    with pytest.raises(ValueError, match="99 are used"):
        separate_pipeline(
            problem,
            {"kinds": {kind: 99}, "kv_token_layers": {}, "requests": 1, "online_share": 1},
        )


def test_routers_of_baselines_may_take_hops_without_flow():
    problem = generated_cluster(num_nodes=24, num_regions=1, seed=1)
    placement = place_swarm(problem)
    hops = all_hops(problem, placement)
    used = {
        (edge.source, edge.target)
        for edge in max_flow(problem, placement, partial_inference=False).edges
        if edge.flow_tokens_per_s > 0
    }
    named = {(source, target) for source, targets in hops.items() for target in targets}
    assert used <= named
    starts = {name for name, held in placement.layers.items() if held.first == 0}
    assert set(hops[SOURCE]) == starts


def test_pruning_makes_the_model_smaller():
    problem = generated_cluster(num_nodes=24, num_regions=1, seed=1)
    pruned, whole = (model_size(problem, average_degree=degree) for degree in (12, None))
    assert pruned[0] < whole[0]
    assert pruned[1] < whole[1]


def test_every_published_method_of_the_parameters_has_all_its_figures():
    figures = json.loads(FIGURES.read_text())
    for problem in figures["problems"].values():
        assert {"helix", "swarm", "separate pipelines"} <= set(problem["methods"])
        for own in problem["methods"].values():
            assert own["offline"] > 0
            assert own["offered_tokens_per_s"] > own["online"][0]
            assert len(own["online"]) == 5
