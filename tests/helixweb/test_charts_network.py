"""Quantities as people read them, pictures of a network and of the flow over many nodes."""

import random
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest

from helixweb.charts.chart import age_text, bit_rate_text, bytes_text, duration_text
from helixweb.charts.flow_diagrams import flow_diagram, measured_flow
from helixweb.charts.heat_maps import MatrixCell, network_matrix
from helixweb.charts.plan_graph import GROUPED_FROM, PlanGraph
from helixweb.inventory.models import Link
from helixweb.inventory.network import Network
from planner.checked_plan import checked_plan
from planner.domain.cluster import COORDINATOR
from planner.domain.placement import LayerRange, Placement
from planner.domain.plan import Plan
from planner.domain.problem import Problem
from planner.generate import PROFILES, generated_cluster
from tests.helixweb.looking import contains


def link(source: str, target: str, rate: float = 1.25e9, latency_s: float = 1e-3) -> Link:
    return Link(
        source=source,
        target=target,
        bandwidth_bytes_per_s=rate,
        latency_s=latency_s,
        origin="imported",
        recorded_at=None,
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (bytes_text(1.53e9), "1.53 GB"),
        (bytes_text(0), "0 B"),
        (bytes_text(999.9e6), "1 GB"),
        (bytes_text(122.4e9), "122 GB"),
        (bytes_text(16384), "16.4 kB"),
        (bit_rate_text(1.25e9), "10 Gbit/s"),
        (bit_rate_text(12.5e6), "100 Mbit/s"),
        (duration_text(0), "0 ms"),
        (duration_text(1e-4), "100 µs"),
        (duration_text(0.055), "55 ms"),
        (duration_text(1.5), "1.5 s"),
        (age_text(12.4), "12 s"),
        (age_text(3599), "59 min"),
        (age_text(7200), "2 h"),
        (age_text(200_000), "2 d"),
    ],
)
def test_numbers_are_written_with_the_prefix_that_fits(text: str, expected: str) -> None:
    assert text == expected


def network_of(
    region_by_node: dict[str, str], region: str, links: list[Link], region_links: list[Link]
) -> Network:
    """Of a cluster that is in no database; `region` is the coordinator's."""
    cluster: Any = SimpleNamespace(
        region_of={COORDINATOR: region, **region_by_node},
        links=SimpleNamespace(all=lambda: links),
        region_links=SimpleNamespace(all=lambda: region_links),
    )
    return Network(cluster)


def test_a_link_of_its_own_counts_before_that_of_the_regions() -> None:
    network = network_of(
        {"a": "home", "b": "away"},
        "home",
        links=[link("a", "b", rate=1e6)],
        region_links=[link("home", "away", rate=5e6), link("away", "home", rate=7e6)],
    )
    links = network.links_between(network.names, network.names)
    assert links["a", "b"].bandwidth_bytes_per_s == 1e6
    assert links["b", "a"].bandwidth_bytes_per_s == 7e6
    assert ("coordinator", "a") not in links
    assert (network.known, network.possible) == (4, 6)


def brute_force_known(network: Network) -> int:
    return len(network.links_between(network.names, network.names))


@pytest.mark.parametrize("seed", range(20))
def test_what_regions_sum_up_is_what_their_pairs_are(seed: int) -> None:
    rng = random.Random(seed)
    regions = {f"n{number}": f"r{rng.randrange(3)}" for number in range(7)}
    names = [COORDINATOR, *regions]
    network = network_of(
        regions,
        f"r{rng.randrange(4)}",
        links=[
            link(source, target, rate=rng.choice([1e6, 2e6]), latency_s=rng.choice([0.01, 0.02]))
            for source in names
            for target in names
            if source != target and rng.random() < 0.3
        ],
        region_links=[
            link(f"r{source}", f"r{target}", rate=rng.choice([3e6, 4e6]))
            for source in range(4)
            for target in range(4)
            if rng.random() < 0.4
        ],
    )
    assert network.known == brute_force_known(network)
    for row in network.rows:
        for pair in row:
            links = network.links_between(
                network.members[pair.source], network.members[pair.target]
            ).values()
            rates = [found.bandwidth_bytes_per_s for found in links]
            latencies = [found.latency_s for found in links]
            assert pair.connected == len(rates) <= pair.possible
            assert (pair.shortest_s, pair.longest_s) == (
                min(latencies, default=0.0),
                max(latencies, default=0.0),
            )
            assert (pair.slowest_bytes_per_s, pair.fastest_bytes_per_s) == (
                min(rates, default=0.0),
                max(rates, default=0.0),
            )


def test_the_matrix_says_in_words_what_it_shows() -> None:
    names = ["coordinator", "a", "a-node-with-a-long-name"]
    cell = MatrixCell(bandwidth_bytes_per_s=12.5e6, latency_s=1e-3)
    chart = network_matrix(names, {("a", "coordinator"): cell}, possible=6)
    assert chart.summary == "1 of 6 directed pairs connected, all at 100 Mbit/s."
    assert not chart.figure["layout"].get("shapes")
    assert chart.rows[1] == ("a", 1, "100 Mbit/s", "100 Mbit/s", "100 Mbit/s", "1 ms")
    assert chart.rows[0][1] == 0
    heat = chart.figure["data"][0]
    assert heat["z"][1][0] == pytest.approx(7.09691)
    assert heat["z"][0][1] is None
    assert chart.figure["layout"]["xaxis"]["ticktext"][2] == "a-node-with-a-lon…"


def test_the_links_of_the_plan_are_outlined_and_said() -> None:
    cells = {
        ("a", "b"): MatrixCell(
            bandwidth_bytes_per_s=1e6, latency_s=0.05, note="measured 5 min ago", in_use=True
        ),
        ("b", "a"): MatrixCell(bandwidth_bytes_per_s=1e9, latency_s=0.0),
    }
    chart = network_matrix(["a", "b"], cells, measure="latency", possible=2)
    contains(chart.summary, "1 carry the plan's flow", "latency 1 µs to 50 ms")
    (outline,) = chart.figure["layout"]["shapes"]
    assert (outline["x0"], outline["y0"]) == (0.54, -0.46)
    assert "measured 5 min ago" in chart.figure["data"][0]["text"][0][1]
    assert [entry.label for entry in chart.legend] == ["outlined: carries the plan's flow"]


def staged_plan(num_nodes: int) -> tuple[Problem, Plan]:
    """Every node takes the next layers that it can hold, around and around the model."""
    problem = generated_cluster(num_nodes=num_nodes, num_regions=1, seed=1)
    first, layers = 0, {}
    for node in problem.cluster.nodes:
        end = min(first + PROFILES[node.compute_profile].max_layers, problem.model.num_layers)
        layers[node.name] = LayerRange(first=first, end=end)
        first = end % problem.model.num_layers
    plan = checked_plan(
        problem,
        Placement(layers=layers),
        partial_inference=True,
        max_hops=None,
        upper_bound_tokens_per_s=1e9,
        placer="test",
        solver="none",
        stop_reason="test",
        elapsed_s=0.0,
    )
    return problem, plan


@pytest.mark.parametrize("num_nodes", [GROUPED_FROM - 1, GROUPED_FROM, 3 * GROUPED_FROM])
def test_the_whole_flow_leads_to_the_right_through_nodes_or_their_groups(num_nodes: int) -> None:
    problem, plan = staged_plan(num_nodes)
    chart = flow_diagram(problem, plan)
    trace = chart.figure["data"][0]
    carrying = [name for name, flow in plan.flow.nodes.items() if flow.flow_tokens_per_s > 0]
    layers, is_grouped = plan.placement.layers, num_nodes >= GROUPED_FROM
    kinds = {(str(layers[name]), problem.profile_of(name).gpu) for name in carrying}
    drawn = kinds if is_grouped else carrying
    assert len(trace["node"]["label"]) == len(drawn) + 2
    assert ("drawn as one" in chart.summary) == is_grouped
    into: dict[int, float] = defaultdict(float)
    out: dict[int, float] = defaultdict(float)
    links = trace["link"]
    x = trace["node"]["x"]
    for source, target, value in zip(links["source"], links["target"], links["value"], strict=True):
        assert x[source] < x[target]
        out[source] += value
        into[target] += value
    (start,) = set(out) - set(into)
    (end,) = set(into) - set(out)
    assert out[start] == pytest.approx(plan.flow.value_tokens_per_s)
    assert into[end] == pytest.approx(plan.flow.value_tokens_per_s)
    for vertex in set(into) & set(out):
        assert into[vertex] == pytest.approx(out[vertex])


def test_what_limits_is_red_and_named_in_groups_too() -> None:
    problem, plan = staged_plan(2 * GROUPED_FROM)
    assert plan.flow.min_cut.nodes or plan.flow.min_cut.edges
    chart = flow_diagram(problem, plan)
    trace = chart.figure["data"][0]
    red = [
        label
        for label, colour in zip(trace["node"]["label"], trace["node"]["color"], strict=True)
        if colour == "var(--bad)"
    ]
    limiting = [name for name in plan.flow.min_cut.nodes if plan.flow.nodes[name].flow_tokens_per_s]
    assert bool(red) == bool(limiting)
    assert all("min cut" in label for label in red)


def test_what_is_measured_at_nodes_is_added_up_for_their_groups() -> None:
    problem, plan = staged_plan(2 * GROUPED_FROM)
    measured = {(edge.source, edge.target): edge.flow_tokens_per_s for edge in plan.flow.edges}
    chart = measured_flow(PlanGraph(problem, plan), measured)
    assert len(chart.rows) < len([rate for rate in measured.values() if rate])
    assert {row[4] for row in chart.rows} == {"as planned"}
    assert len({row[:2] for row in chart.rows}) == len(chart.rows)
