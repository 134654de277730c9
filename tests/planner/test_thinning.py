"""Large plans are simulated by a share of every stage, whose mix is that of the whole."""

import pytest
from tiny_problems import tiny_problem

from planner.domain.placement import LayerRange, Placement
from planner.objectives.thinning import thinned
from planner.objectives.trial import Span, Trials
from planner.plan_options import PlanOptions
from planner.tuning.served import TrialTuning
from planner.workload import demand as demand_module

NODES = 12
PROBLEM = tiny_problem([[90.0, 50.0]] * NODES, num_layers=2)
STAGES = Placement(
    layers={
        f"n{number}": LayerRange(first=number % 2, end=number % 2 + 1) for number in range(NODES)
    }
)


def test_every_stage_gives_the_same_share():
    share = thinned(PROBLEM, STAGES, most_nodes=6)
    ranges = [held.first for held in share.layers.values()]
    assert (ranges.count(0), ranges.count(1)) == (3, 3)
    assert all(STAGES.layers[name] == held for name, held in share.layers.items())


def test_a_small_plan_and_a_chain_stay_whole():
    chain = Placement(layers={"n0": LayerRange(first=0, end=1), "n1": LayerRange(first=1, end=2)})
    assert thinned(PROBLEM, STAGES, most_nodes=NODES) == STAGES
    assert thinned(PROBLEM, chain, most_nodes=1) == chain


def test_components_that_serve_apart_are_left_out_where_stages_are_narrow():
    whole = LayerRange(first=0, end=2)
    apart = Placement(
        layers={"n0": whole, "n1": whole, "n2": whole},
        components=(frozenset({"n0"}), frozenset({"n1"}), frozenset({"n2"})),
    )
    assert len(thinned(PROBLEM, apart, most_nodes=2).components) == 2
    assert thinned(PROBLEM, apart, most_nodes=1).components == ()


@pytest.mark.slow
def test_what_a_share_serves_stands_for_the_whole(monkeypatch):
    def served() -> float:
        trials = Trials(PROBLEM, PlanOptions())
        found = trials.simulated(
            trials.estimated(STAGES, placer="stages"),
            seeds=(1, 2),
            span=Span(warm_up=2.0, window=4.0),
        )
        return found.decode_tokens_per_s

    monkeypatch.setattr(demand_module, "_LEAST_PROMPTS_IN_FLIGHT", 1000)  # KV room is the limit
    whole = served()
    monkeypatch.setattr(TrialTuning, "MOST_SIMULATED_NODES", NODES // 2)
    assert served() == pytest.approx(whole, rel=0.1)
