"""The artifact's routers of figure 10: whom they take, and when."""

import random
from dataclasses import replace

import pytest

from benchmarks.helix import python_state
from benchmarks.helix.artifact_routers import AnyIdle, ArtifactRouting, ByHopTime, ShortestWait
from planner.domain.cluster import Cluster, Link, Node
from planner.domain.layer_times import BatchLimits, LayerTimes
from planner.domain.model_spec import ModelSpec
from planner.domain.placement import LayerRange, Placement
from planner.domain.problem import Problem, Workload
from planner.domain.profile import ComputeProfile
from planner.domain.serving_policy import PUBLISHED_POLICY
from planner.simulator.simulate import SimulationOptions, simulate
from planner.workload.demand import Backlog
from planner.workload.lengths import published_lengths


def links_to(*targets):
    """Links 0, 1, ... from one vertex to these nodes."""
    return [
        python_state.Link(number, 9, target, 1e6, 0.001) for number, target in enumerate(targets)
    ]


def test_any_idle_link_is_as_likely_as_the_others_and_none_that_sends_is_taken():
    links = links_to(0, 1, 2)
    hop = AnyIdle(random.Random(1))
    taken = [hop.choose(links, links[1:]) for _ in range(400)]
    assert 150 < taken.count(links[1]) < 250
    assert taken.count(links[0]) == 0
    assert hop.choose(links, []) is None


def test_an_idle_link_to_the_shortest_queue_is_taken():
    links = links_to(0, 1, 2)
    hop = ShortestWait([3, 1, 2].__getitem__, random.Random(1))
    assert hop.choose(links, links) is links[1]


def test_what_is_for_the_shortest_queue_waits_while_its_link_sends_though_others_are_idle():
    links = links_to(0, 1)
    hop = ShortestWait([3, 1].__getitem__, random.Random(1))
    assert hop.choose(links, links[:1]) is None


def test_equal_queues_are_drawn_among():
    links = links_to(0, 1, 2)
    hop = ShortestWait([0, 0, 5].__getitem__, random.Random(1))
    taken = [hop.choose(links, links) for _ in range(400)]
    assert 150 < taken.count(links[0]) < 250
    assert taken.count(links[2]) == 0


def test_swarm_shares_by_the_inverse_of_hop_times_whether_links_send_or_not():
    links = links_to(0, 1)
    line = ByHopTime()
    for _ in range(20):
        line.took(0, 0.1)
        line.took(1, 0.3)
    taken = [line.choose(links, []) for _ in range(400)]
    assert taken.count(links[0]) == pytest.approx(300, abs=2)


def two_ways_problem():
    """n0 sends prompts on to n1 or n2 over links of very different speed, both to n3."""
    layers, most = 3, 2
    profile = ComputeProfile(
        name="kind",
        gpu="test",
        vram_bytes=1e9,
        max_layers=most,
        tokens_per_s=(1.0,) * most,
        kv_capacity_token_layers=(1e6,) * most,
        layer_times=LayerTimes(prompt=((100.0, 0.002),), decode=((2.0, 0.001), (10.0, 0.002))),
        batch_limits=BatchLimits(prompt_max_requests=(1,) * most, decode_max_tokens=(64,) * most),
    )
    names = ("coordinator", "n0", "n1", "n2", "n3")
    return Problem(
        name="two ways",
        model=ModelSpec(
            name="model",
            num_layers=layers,
            activation_bytes_per_token=1000.0,
            token_bytes=2.0,
            bytes_per_layer=1e6,
        ),
        workload=Workload(mean_prompt_tokens=100, mean_output_tokens=10),
        compute_profiles={"kind": profile},
        cluster=Cluster(
            name="two ways",
            coordinator_region="here",
            nodes=tuple(
                Node(name=name, region="here", compute_profile="kind") for name in names[1:]
            ),
            region_links=(),
            links=tuple(
                Link(
                    source=source,
                    target=target,
                    bandwidth_bytes_per_s=2e6 if (source, target) == ("n0", "n2") else 2e7,
                    latency_s=0.001,
                )
                for source in names
                for target in names
                if source != target
            ),
        ),
    )


def served(name, *, requests=16):
    """(forecast, share of prompt tokens that went by the fast link)."""
    ranges = {"n0": (0, 1), "n1": (1, 2), "n2": (1, 2), "n3": (2, 3)}
    hops = {
        "source": ("n0",),
        "n0": ("n1", "n2"),
        "n1": ("n3",),
        "n2": ("n3",),
        "n3": ("sink",),
    }
    makers = {}
    if name is not None:
        routing = ArtifactRouting(name, seed=1)
        makers = {"engine_maker": routing.engine, "router_maker": routing.router}
    forecast = simulate(
        two_ways_problem(),
        placement=Placement(
            layers={node: LayerRange(first=first, end=end) for node, (first, end) in ranges.items()}
        ),
        routing_weights={source: dict.fromkeys(targets, 1.0) for source, targets in hops.items()},
        router="random",
        demand=Backlog(
            lengths=published_lengths(1), prompts_in_flight=requests, requests_in_flight=requests
        ),
        policy=replace(PUBLISHED_POLICY, kv_high_water=1.0),
        partial_inference=False,
        options=SimulationOptions(warm_up_s=2.0, window_s=8.0, fixed_output_tokens=240),
        **makers,
    )
    rates = {node: found.prompt_tokens_per_s for node, found in forecast.nodes.items()}
    assert rates["n1"] + rates["n2"] == pytest.approx(rates["n3"], rel=0.05)
    return forecast, rates["n1"] / (rates["n1"] + rates["n2"])


@pytest.mark.parametrize("name", ["random", "shortest_queue", "swarm"])
def test_a_routing_serves_a_closed_loop_the_same_at_every_run(name):
    forecast, _ = served(name)
    assert forecast.decode_tokens_per_s > 0
    assert forecast.requests_preempted == 0
    assert served(name)[0] == forecast


def test_who_decides_at_the_hop_goes_around_the_link_that_is_sending():
    """The product's random router decides when a request is let in, and takes each as often."""
    blind, blind_share = served(None)
    random_hops, share = served("random")
    assert blind_share == pytest.approx(0.5, abs=0.1)
    assert share > blind_share + 0.1
    assert random_hops.decode_tokens_per_s > blind.decode_tokens_per_s


def test_swarm_learns_that_hops_by_the_slow_link_take_long():
    assert served("swarm")[1] > 0.6


def test_tokens_that_come_home_from_two_nodes_are_refused():
    routing = ArtifactRouting("random", seed=1)
    with pytest.raises(ValueError, match="whose last layers are on one node"):
        simulate(
            two_ways_problem(),
            placement=Placement(
                layers={
                    "n0": LayerRange(first=0, end=1),
                    "n1": LayerRange(first=1, end=3),
                    "n2": LayerRange(first=1, end=3),
                }
            ),
            routing_weights={
                "source": {"n0": 1.0},
                "n0": {"n1": 1.0, "n2": 1.0},
                "n1": {"sink": 1.0},
                "n2": {"sink": 1.0},
            },
            demand=Backlog(lengths=published_lengths(1)),
            policy=PUBLISHED_POLICY,
            partial_inference=False,
            options=SimulationOptions(warm_up_s=0.0, window_s=10.0, fixed_output_tokens=240),
            engine_maker=routing.engine,
            router_maker=routing.router,
        )
