"""Quantities as people read them, and the picture of a network."""

import pytest

from helixweb.charts.network_matrix import network_matrix
from helixweb.charts.quantities import bit_rate_text, bytes_text, duration_text
from helixweb.inventory.network import build_network
from planner.domain.cluster import Link


def link(source: str, target: str, rate: float = 1.25e9, latency_s: float = 1e-3) -> Link:
    return Link(source=source, target=target, bandwidth_bytes_per_s=rate, latency_s=latency_s)


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
    ],
)
def test_numbers_are_written_with_the_prefix_that_fits(text: str, expected: str) -> None:
    assert text == expected


def test_a_link_of_its_own_counts_before_that_of_the_regions() -> None:
    network = build_network(
        region_by_node={"a": "home", "b": "away"},
        coordinator_region="home",
        links=[link("a", "b", rate=1e6)],
        region_links=[link("home", "away", rate=5e6), link("away", "home", rate=7e6)],
    )
    assert network.links["a", "b"].bandwidth_bytes_per_s == 1e6
    assert network.links["b", "a"].bandwidth_bytes_per_s == 7e6
    assert ("coordinator", "a") not in network.links
    assert (len(network.links), network.possible) == (4, 6)


def test_region_pairs_count_and_bound_their_links() -> None:
    network = build_network(
        region_by_node={"a": "home", "b": "home", "c": "away"},
        coordinator_region="home",
        links=[link("a", "c", rate=1e6), link("b", "c", rate=3e6, latency_s=0.02)],
        region_links=[],
    )
    row = next(row for row in network.rows if row.source == "home")
    pair = row.pairs[network.regions.index("away")]
    assert (pair.connected, pair.possible) == (2, 2)
    assert (pair.slowest_bytes_per_s, pair.fastest_bytes_per_s) == (1e6, 3e6)
    assert (pair.shortest_s, pair.longest_s) == (1e-3, 0.02)
    inside = row.pairs[network.regions.index("home")]
    assert (inside.connected, inside.possible) == (0, 2)


def test_the_matrix_says_in_words_what_it_shows() -> None:
    names = ["coordinator", "a", "a-node-with-a-long-name"]
    chart = network_matrix(names, {("a", "coordinator"): link("a", "coordinator", rate=12.5e6)})
    assert chart.summary == "1 of 6 directed pairs are connected, all at 100 Mbit/s."
    assert chart.rows[1] == ("a", 1, "100 Mbit/s", "100 Mbit/s", "100 Mbit/s", "1 ms")
    assert chart.rows[0][1] == 0
    heat = chart.figure["data"][0]
    assert heat["z"][1][0] == pytest.approx(7.09691)
    assert heat["z"][0][1] is None
    assert chart.figure["layout"]["xaxis"]["ticktext"][2] == "a-node-with-a-lon…"


def test_a_network_without_links_has_a_picture_too() -> None:
    assert "No two nodes" in network_matrix(["coordinator", "a"], {}).summary
