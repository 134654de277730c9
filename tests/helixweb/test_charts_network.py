"""Quantities as people read them, and the picture of a network."""

import random
from types import SimpleNamespace
from typing import Any

import pytest

from helixweb.charts.chart import age_text, bit_rate_text, bytes_text, duration_text
from helixweb.charts.heat_maps import MatrixCell, network_matrix
from helixweb.inventory.models import Link
from helixweb.inventory.network import Network
from planner.domain.cluster import COORDINATOR
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
