"""The third paper's orders come out of its machines' documented parameters, in simulation."""

import pytest

from benchmarks.instances import paper


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_schedulers_among_unequal_instances_come_in_the_papers_order(seed):
    parameters = paper.read_parameters()
    outcomes = paper.run_schedulers(
        parameters,
        paper.two_v100(parameters),
        model="Llama-3-8B",
        weights=[4.0, 1.0],
        rate_per_s=24,
        seed=seed,
    )
    tokens_per_s = {name: one.tokens_per_s for name, one in outcomes.items()}
    assert (
        tokens_per_s["load-aware"]
        >= tokens_per_s["memory"]
        > tokens_per_s["single"]
        > tokens_per_s["RR"]
    )
    assert outcomes["load-aware"].finish_spread < 0.2 < outcomes["RR"].finish_spread


def test_degrees_rank_as_in_the_paper_for_most_samples_of_requests():
    orders = paper.count_orders(paper.read_parameters(), seeds=20)
    order, times = orders.most_common(1)[0]
    assert order == paper.PAPER_ORDER
    assert times >= 10


def test_rings_that_nobody_described_are_refused_by_name():
    with pytest.raises(SystemExit, match="knows no rings 'rdma'"):
        paper.read_parameters(rings="rdma")
