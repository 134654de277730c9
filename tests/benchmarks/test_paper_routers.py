"""The artifact's routers of figure 10: whom they take, and what they know."""

import random
from dataclasses import replace

import pytest

from benchmarks.helix.artifact_routers import ArtifactRouting, ByHopTime, ShortestWait
from benchmarks.helix.method import all_hops
from planner.domain.cluster import SINK
from planner.domain.serving_policy import PUBLISHED_POLICY
from planner.generate import generated_cluster
from planner.placers.swarm import place_swarm
from planner.simulator.simulate import SimulationOptions, simulate
from planner.workload.demand import Backlog
from planner.workload.lengths import published_lengths


class Seconds:
    def __init__(self, **of_target):
        self.of_target = of_target

    def hop_s(self, _source, target):
        return self.of_target["abc"[target]]


def test_the_shortest_wait_is_taken():
    turns = ShortestWait({"a": 3, "b": 1, "c": 2}.__getitem__, random.Random(1))
    assert turns.take(("a", "b", "c")) == "b"
    assert turns.take(("a", "c")) == "c"
    assert turns.take((SINK,)) == SINK


def test_equal_waits_are_drawn_among():
    turns = ShortestWait({"a": 0, "b": 0, "c": 5}.__getitem__, random.Random(1))
    taken = [turns.take(("a", "b", "c")) for _ in range(400)]
    assert 150 < taken.count("a") < 250
    assert taken.count("c") == 0


def test_swarm_shares_by_the_inverse_of_hop_times():
    turns = ByHopTime(9, {"a": 0, "b": 1}, ("a", "b"), Seconds(a=0.1, b=0.3))
    taken = [turns.take(("a", "b")) for _ in range(400)]
    assert taken.count("a") == pytest.approx(300, abs=2)


@pytest.mark.parametrize("name", ["shortest_queue", "swarm"])
def test_a_routing_serves_a_closed_loop_the_same_at_every_run(name):
    problem = generated_cluster(num_nodes=24, num_regions=1, seed=1)
    placement = place_swarm(problem)

    def run():
        routing = ArtifactRouting(name)
        return simulate(
            problem,
            placement=placement,
            routing_weights=all_hops(problem, placement),
            demand=Backlog(
                lengths=published_lengths(1), prompts_in_flight=20, requests_in_flight=20
            ),
            policy=replace(PUBLISHED_POLICY, kv_high_water=1.0, published_batch_limits=False),
            partial_inference=False,
            options=SimulationOptions(
                warm_up_s=5.0, window_s=10.0, fixed_output_tokens=240, recorded_pipelines=20
            ),
            engine_maker=routing.engine,
            router_maker=routing.router,
        )

    forecast = run()
    assert forecast.decode_tokens_per_s > 0
    assert len(set(forecast.pipelines)) > 1
    assert forecast == run()
