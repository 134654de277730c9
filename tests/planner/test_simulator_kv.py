"""KV room in forecasts: who is let in, who waits, who is preempted."""

import dataclasses
import itertools

import pytest
from simulated_clusters import (
    NO_COPY,
    PLAIN,
    at,
    cluster_problem,
    lengths,
    placed,
    run,
)

from benchmarks.helix.python_engine import PythonEngine
from planner.domain.cluster import Link
from planner.simulator.compiled_engine import Engine
from planner.workload.demand import Arrivals, Backlog
from planner.workload.request import Request


def test_a_full_component_does_not_hold_up_the_others():
    problem = cluster_problem([(0.01, 0.001), (0.01, 0.001)], num_layers=1, kv_token_layers=400)
    placement = placed((0, 1), (0, 1), components=(frozenset({"n0"}), frozenset({"n1"})))
    forecast = run(problem, placement, at(*[0.0] * 8, prompt_tokens=100, output_tokens=100))
    assert forecast.requests_finished == 8
    assert {name for name, node in forecast.nodes.items() if node.utilisation > 0} == {"n0", "n1"}
    assert forecast.queue.p99_s > 0


def test_kv_reservations_grow_with_answers_longer_than_predicted():
    """Ten tokens are predicted; while that stays, requests are let in that find no pages."""
    problem = cluster_problem([(0.001, 0.001)], num_layers=1, kv_token_layers=600)

    def preempted(**changes):
        return run(
            problem,
            placed((0, 1)),
            Backlog(lengths=itertools.repeat(lengths(20, 300))),
            options=dataclasses.replace(NO_COPY, warm_up_s=6.0, window_s=4.0, **changes),
        ).requests_preempted

    assert preempted() == 0
    assert preempted(fixed_output_tokens=10) > 20


# Let in by the page that their prompts and one token more take, whatever comes of them.
SCARCE = dataclasses.replace(NO_COPY, fixed_output_tokens=1)


def of_pages(count):
    return cluster_problem([(0.1, 0.01)], num_layers=1, kv_token_layers=16 * count)


def test_the_youngest_gives_its_pages_up_and_begins_anew_from_the_tokens_it_has():
    """Both come to a second page with their 17th token, and there are three."""
    wanted = at(0.0, 0.0, prompt_tokens=10, output_tokens=30)
    forecast = run(of_pages(3), placed((0, 1)), wanted, options=SCARCE)
    assert forecast.requests_preempted == 1
    assert forecast.kv_peak == 1.0
    assert forecast.requests_finished == forecast.ttft.count == forecast.e2e.count == 2
    assert forecast.decode_tokens_per_s * forecast.window_s == pytest.approx(60)
    assert forecast.itl.count == 58
    # The node runs both prompts, and the second's once more with the 7 tokens that came of it; what
    # prompts were served does not count that.
    assert forecast.nodes["n0"].prompt_tokens_per_s * forecast.window_s == pytest.approx(
        10 + 10 + 17
    )
    assert forecast.prompt_tokens_per_s * forecast.window_s == pytest.approx(20)
    # The gap lasts as long as the first still takes.
    alone = run(
        of_pages(3), placed((0, 1)), at(0.0, prompt_tokens=10, output_tokens=30), options=SCARCE
    )
    assert forecast.itl.p99_s > 0.6 * alone.e2e.p50_s


def test_a_prompt_is_refused_that_leaves_no_page_for_those_who_grow():
    arrivals = [
        Request(arrival_s=0.0, lengths=lengths(10, 45)),  # four pages in the end
        Request(arrival_s=0.3, lengths=lengths(10, 5)),
    ]
    free = run(of_pages(9), placed((0, 1)), Arrivals(requests=iter(arrivals)), options=SCARCE)
    assert free.requests_preempted == 0
    refused = run(of_pages(4), placed((0, 1)), Arrivals(requests=iter(arrivals)), options=SCARCE)
    assert refused.requests_preempted == 1
    assert refused.requests_finished == 2
    # It has its first token only after the other has had its last.
    assert refused.ttft.p99_s > refused.e2e.p50_s / 2 > free.ttft.p99_s


def test_a_request_that_outgrows_the_whole_room_fails_and_lets_the_others_in():
    wanted = [
        Request(arrival_s=0.0, lengths=lengths(10, 200)),
        Request(arrival_s=0.1, lengths=lengths(30, 10)),
    ]
    forecast = run(of_pages(3), placed((0, 1)), Arrivals(requests=iter(wanted)), options=SCARCE)
    assert (forecast.requests_failed, forecast.requests_finished) == (1, 1)
    assert forecast.e2e.count == 1


@pytest.mark.parametrize("engine_maker", [Engine, PythonEngine])
def test_a_preempted_request_goes_on_where_its_tokens_fit_and_only_those_predicted_do_not(
    engine_maker,
):
    """The slow request, by n0, keeps one of six pages from the fast one until that needs them all.

    Its 81 tokens and 30 more would take seven pages; the nine that it still wants fit into six.
    """
    problem = cluster_problem(
        [(0.1, 1.0), (0.1, 0.01), (0.1, 0.01)], num_layers=2, kv_token_layers=6 * 16
    )
    arrivals = [
        Request(arrival_s=0.0, lengths=lengths(2, 10)),
        Request(arrival_s=1.0, lengths=lengths(2, 88)),
    ]
    records = []
    forecast = run(
        problem,
        placed((0, 1), (0, 1), (1, 2)),
        Arrivals(requests=iter(arrivals)),
        options=dataclasses.replace(NO_COPY, fixed_output_tokens=30),
        engine_maker=engine_maker,
        on_request=records.append,
    )
    assert (forecast.requests_preempted, forecast.requests_failed) == (1, 0)
    slow, fast = records
    assert (slow.attempts, fast.attempts) == (1, 2)
    assert fast.output_tokens == 88
    assert fast.finished_s > slow.finished_s


def test_the_coordinator_hears_late_that_a_far_node_has_no_pages():
    """Refused at once by n1; until the coordinator knows it, the request holds its pages of n0."""
    problem = cluster_problem([(0.1, 0.01), (0.1, 0.01)], num_layers=2, kv_token_layers=48)
    ends = ("coordinator", "n0", "n1")

    def forecast(home_s):
        links = tuple(
            Link(
                source=source,
                target=target,
                bandwidth_bytes_per_s=1e6,
                latency_s=home_s if (source, target) == ("n1", "coordinator") else 1e-4,
            )
            for source in ends
            for target in ends
            if source != target
        )
        cluster = dataclasses.replace(problem.cluster, region_links=(), links=links)
        return run(
            dataclasses.replace(problem, cluster=cluster),
            placed((0, 1), (1, 2)),
            at(0.0, 0.0, prompt_tokens=10, output_tokens=30),
            options=SCARCE,
            policy=dataclasses.replace(PLAIN, return_path="first_stage"),
        )

    near, far = forecast(1e-4), forecast(0.5)
    assert near.requests_preempted == far.requests_preempted == 1
    assert far.requests_finished == 2
    assert far.e2e.p99_s > near.e2e.p99_s + 0.5


@pytest.mark.parametrize("engine_maker", [Engine, PythonEngine])
def test_a_token_takes_a_page_of_each_layer_once_where_requests_enter_a_node_at_several(
    engine_maker,
):
    """One runs through all four layers of n1, the other through the last two."""
    problem = cluster_problem([(0.01, 0.001), (0.01, 0.001)], num_layers=4, kv_token_layers=1000)
    forecast = run(
        problem,
        placed((0, 2), (0, 4)),
        at(0.0, 100.0, prompt_tokens=10, output_tokens=30),
        options=dataclasses.replace(NO_COPY, page_tokens=1, window_s=200.0),
        partial_inference=True,
        engine_maker=engine_maker,
    )
    assert forecast.requests_finished == 2
    tokens = 10 + 29  # nothing is kept of the last token
    assert forecast.nodes["n0"].kv_peak == tokens * 2 / 1000
    assert forecast.nodes["n1"].kv_peak == tokens * 4 / 1000


def test_a_long_run_needs_no_more_request_numbers_than_run_at_once():
    numbers = set()

    class Watched(Engine):
        def admit(self, **arguments):
            numbers.add(number := super().admit(**arguments))
            return number

    problem = cluster_problem([(0.001, 0.001)], num_layers=1, kv_token_layers=500)
    forecast = run(
        problem,
        placed((0, 1)),
        Backlog(lengths=itertools.repeat(lengths(50, 5))),
        options=dataclasses.replace(NO_COPY, window_s=4.0),
        engine_maker=Watched,
    )
    assert forecast.requests_finished > 100
    assert len(numbers) <= 10
