"""Links in forecasts: lanes, pieces of prompts, shared bandwidths; followed by hand."""

import dataclasses

import pytest
from simulated_clusters import (
    PLAIN,
    TOKEN_BYTES,
    cluster_problem,
    lengths,
    placed,
    run,
    within_a_bucket,
)

from planner.domain.cluster import Link, SharedBandwidth
from planner.workload.demand import Arrivals
from planner.workload.request import Request


def decode_gap_beside_a_long_prompt(**changes):
    """The longest gap of a decoding request while another's prompt crosses the same link."""
    problem = cluster_problem([(0.001, 0.001), (0.001, 0.001)], num_layers=2)
    arrivals = [
        Request(arrival_s=0.0, lengths=lengths(10, 60)),
        Request(arrival_s=0.05, lengths=lengths(1000, 1)),
    ]
    forecast = run(
        problem,
        placed((0, 1), (1, 2)),
        Arrivals(requests=iter(arrivals)),
        policy=dataclasses.replace(PLAIN, **changes),
    )
    return forecast.itl.p99_s, forecast.ttft.p99_s


def test_decodes_wait_for_a_prompt_on_the_link_unless_they_may_overtake_its_pieces():
    fifo, _ = decode_gap_beside_a_long_prompt()
    # The prompt takes 1 s: longer than all else together, so few decodes fall into it.
    pieces, _ = decode_gap_beside_a_long_prompt(transmission="decode_first", piece_bytes=1000.0)
    assert fifo > 0.5
    assert pieces < 0.03


def test_a_whole_prompt_holds_the_link_where_it_goes_in_one_piece():
    whole, _ = decode_gap_beside_a_long_prompt(transmission="decode_first", piece_bytes=None)
    assert whole > 0.5


def prompts_over_one_card(*sizes, bandwidths, card_bytes_per_s, **changes):
    """Prompts of so many bytes leave the coordinator at once, each to a node of its own."""
    problem = cluster_problem([(1e-9, 1e-9)] * len(sizes), num_layers=1)
    names = [f"n{number}" for number in range(len(sizes))]
    links = [
        Link(source="coordinator", target=name, bandwidth_bytes_per_s=bandwidth, latency_s=0.0)
        for name, bandwidth in zip(names, bandwidths, strict=True)
    ]
    card = SharedBandwidth(
        name="card",
        members=("coordinator",),
        direction="egress",
        bandwidth_bytes_per_s=card_bytes_per_s,
        scope="nic",
    )
    cluster = dataclasses.replace(problem.cluster, links=tuple(links), shared=(card,))
    arrivals = [
        Request(arrival_s=0.0, lengths=lengths(int(size / TOKEN_BYTES), 1)) for size in sizes
    ]
    return run(
        dataclasses.replace(problem, cluster=cluster),
        placed(*[(0, 1)] * len(sizes)),
        Arrivals(requests=iter(arrivals)),
        policy=dataclasses.replace(PLAIN, **changes),
    )


@pytest.mark.parametrize("transmission", ["fifo", "decode_first"])
def test_links_share_a_bandwidth_evenly_and_go_faster_when_others_are_done(transmission):
    forecast = prompts_over_one_card(
        1000, 3000, bandwidths=(1e6, 1e6), card_bytes_per_s=1000.0, transmission=transmission
    )
    # Each has 500 bytes/s for 2 s; then the other has all of it for its last 2000 bytes.
    assert forecast.simulated_s == pytest.approx(4.0, abs=0.01)
    assert forecast.ttft.p50_s == within_a_bucket(2.001)


def test_what_a_slow_link_leaves_of_a_shared_bandwidth_goes_to_the_others():
    forecast = prompts_over_one_card(100, 1800, bandwidths=(100.0, 1e6), card_bytes_per_s=1000.0)
    # 100 and 900 bytes/s for 1 s, then 1000 for the 900 bytes left.
    assert forecast.simulated_s == pytest.approx(1.9, abs=0.01)
