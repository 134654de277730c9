import itertools
from dataclasses import replace

import pytest
from tiny_problems import all_placements, tiny_problem

from planner.domain.cluster import Link
from planner.domain.errors import InvalidProblem
from planner.domain.placement import LayerRange
from planner.domain.rules import PlacementRules
from planner.max_flow import max_flow
from planner.multi_model.deal import gathered_deal, highest_deal, kinds_of
from planner.multi_model.dealt import planned
from planner.multi_model.exchange import exchange_nodes
from planner.multi_model.plan_models import plan_models
from planner.multi_model.shares import ModelShare
from planner.objectives.trial import Trials
from planner.placers.base import InvalidOptions, NeverCancelled
from planner.placers.stop import Stop
from planner.plan_options import PlanOptions
from planner.planning import NoPlacementFound

OPTIONS = PlanOptions(objective="flow", solver="highs", time_limit_s=20.0)
BIG = tiny_problem([[90.0, 50.0], [90.0, 50.0], [40.0, 20.0], [40.0, 20.0]], num_layers=3)
SMALL = tiny_problem([[300.0, 200.0], [300.0, 200.0], [90.0, 40.0], [90.0, 40.0]], num_layers=2)


def mix_of(*shares, **options):
    return plan_models(shares, options=replace(OPTIONS, **options), cancel=NeverCancelled())


def best_flows(problem):
    """By the set of nodes that hold layers, over every placement."""
    best = {}
    for placed in all_placements(problem):
        names = frozenset(placed.layers)
        flow = max_flow(problem, placed, partial_inference=True).value_tokens_per_s
        best[names] = max(best.get(names, 0.0), flow)
    return best


def best_flow(flows, names):
    return max(flow for held, flow in flows.items() if held <= names)


def best_level(shares, *, of=best_flows):
    """Over every way to give each node to one model, each model placed as well as possible."""
    names = [node.name for node in shares[0].problem.cluster.nodes]
    flows_of = [of(share.problem) for share in shares]
    best = 0.0
    for owners in itertools.product(range(len(shares)), repeat=len(names)):
        level = min(
            best_flow(
                flows_of[number],
                {name for name, owner in zip(names, owners, strict=True) if owner == number},
            )
            / share.weight
            for number, share in enumerate(shares)
        )
        best = max(best, level)
    return best


@pytest.mark.parametrize("weight", [0.25, 1.0, 4.0])
def test_two_models_share_a_cluster_nearly_as_well_as_trying_everything(weight):
    shares = (ModelShare(problem=BIG), ModelShare(problem=SMALL, weight=weight))
    mix = mix_of(*shares)
    best = best_level(shares)
    weights = [share.weight for share in shares]
    deal = highest_deal(shares, kinds_of(shares), weights=weights, cancel=NeverCancelled())
    assert deal.bound_tokens_per_s >= best
    assert mix.level_bound_tokens_per_s >= best
    assert 0.7 * best <= mix.level_tokens_per_s <= best * (1 + 1e-6)


def most_served(problem):
    """By the set of nodes that hold layers, over every placement, on a cluster of these."""
    everything = {node.name for node in problem.cluster.nodes}
    trials_of, best = {}, {frozenset(): 0.0}
    for placed in all_placements(problem):
        names = frozenset(placed.layers)
        if not names:
            continue
        if names not in trials_of:
            own = replace(problem, cluster=problem.cluster.without(everything - names))
            trials_of[names] = Trials(own, PlanOptions())
        served = trials_of[names].score(placed).merit[0]
        best[names] = max(best.get(names, 0.0), served)
    return best


def test_two_models_serve_nearly_as_much_as_by_trying_everything():
    few = tiny_problem([[90.0, 50.0], [90.0, 50.0], [40.0, 20.0]], num_layers=2)
    fast = tiny_problem([[300.0], [250.0], [90.0]], num_layers=1)
    shares = (ModelShare(problem=few), ModelShare(problem=fast, weight=2.0))
    mix = mix_of(*shares, objective="decode", time_limit_s=5.0)
    assert mix.level_tokens_per_s >= 0.9 * best_level(shares, of=most_served) > 0
    assert mix.level_bound_tokens_per_s is None
    served = [plan.forecast.estimated.decode_tokens_per_s for plan in mix.plans]
    assert mix.level_tokens_per_s == min(served[0], served[1] / 2.0)


@pytest.mark.parametrize(
    "options", [{"objective": "cost"}, {"objective": "fewest_nodes", "demand_tokens_per_s": 1.0}]
)
def test_objectives_that_weights_are_no_shares_of_are_refused(options):
    with pytest.raises(InvalidOptions, match="use one of: decode, flow, latency"):
        mix_of(ModelShare(problem=BIG), **options)


def test_no_node_serves_two_models_and_every_flow_is_exact():
    mix = mix_of(ModelShare(problem=BIG), ModelShare(problem=SMALL))
    first, second = mix.plans
    assert set(first.placement.layers).isdisjoint(second.placement.layers)
    for plan, problem in zip(mix.plans, (BIG, SMALL), strict=True):
        again = max_flow(problem, plan.placement, partial_inference=True)
        assert plan.flow.value_tokens_per_s == pytest.approx(again.value_tokens_per_s)


def test_one_model_alone_has_the_whole_cluster():
    mix = mix_of(ModelShare(problem=BIG))
    everything = max(best_flows(BIG).values())
    assert mix.level_tokens_per_s == pytest.approx(everything, rel=1e-2)


def test_models_that_do_not_fit_together_are_refused():
    tight = tiny_problem([[9.0, 8.0], [9.0, 8.0]], num_layers=3)
    with pytest.raises(NoPlacementFound, match=r"cannot hold all models at once: .*\(3\)"):
        mix_of(ModelShare(problem=tight), ModelShare(problem=tight))


def test_an_excluded_node_serves_none():
    rules = PlacementRules(excluded_nodes=frozenset({"n0"}))
    mix = mix_of(ModelShare(problem=BIG, weight=0.1), ModelShare(problem=SMALL), rules=rules)
    assert all("n0" not in plan.placement.layers for plan in mix.plans)


@pytest.mark.parametrize(
    ("shares", "rules", "words"),
    [
        ((), PlacementRules(), "no model"),
        (
            (ModelShare(problem=BIG), ModelShare(problem=tiny_problem([[9.0]], num_layers=1))),
            PlacementRules(),
            "differ in node 'n1'",
        ),
        (
            (ModelShare(problem=BIG),),
            PlacementRules(pinned={"n0": LayerRange(first=0, end=1)}),
            "'n0' is pinned",
        ),
    ],
)
def test_mixes_that_make_no_sense_are_refused(shares, rules, words):
    with pytest.raises(InvalidProblem, match=words):
        mix_of(*shares, rules=rules)


def test_a_weight_is_above_zero():
    with pytest.raises(InvalidProblem, match="weight of 'tiny-model' is 0"):
        ModelShare(problem=BIG, weight=0.0)


def in_two_regions(problem, *, tokens_per_s_between):
    """n0 and n2 here, n1 and n3 there."""
    regions = {"n0": "here", "n1": "there", "n2": "here", "n3": "there"}
    ample = problem.cluster.region_links[0].bandwidth_bytes_per_s
    slow = tokens_per_s_between * problem.model.activation_bytes_per_token
    return replace(
        problem,
        cluster=replace(
            problem.cluster,
            nodes=tuple(replace(node, region=regions[node.name]) for node in problem.cluster.nodes),
            region_links=tuple(
                Link(
                    source=source,
                    target=target,
                    bandwidth_bytes_per_s=ample if source == target else slow,
                    latency_s=0.001,
                )
                for source, target in itertools.product(("here", "there"), repeat=2)
            ),
        ),
    )


@pytest.mark.parametrize("between", [1.0, 15.0])
def test_models_keep_to_regions_where_the_links_between_are_slow(between):
    shares = tuple(
        ModelShare(problem=in_two_regions(problem, tokens_per_s_between=between))
        for problem in (BIG, SMALL)
    )
    assert mix_of(*shares).level_tokens_per_s >= 0.95 * best_level(shares)


def test_a_gathered_deal_visits_fewer_regions_at_the_level_asked_for():
    shares = tuple(
        ModelShare(problem=in_two_regions(problem, tokens_per_s_between=9.0))
        for problem in (BIG, BIG)
    )
    kinds = kinds_of(shares)
    highest = highest_deal(shares, kinds, weights=[1.0, 1.0], cancel=NeverCancelled())
    level = 0.9 * highest.level_tokens_per_s
    gathered = gathered_deal(shares, kinds, weights=[1.0, 1.0], level_tokens_per_s=level)
    visited = [
        {kind.region for kind, count in zip(kinds, counts, strict=True) if count}
        for counts in gathered
    ]
    assert [len(regions) for regions in visited] == [1, 1]
    assert visited[0] != visited[1]


def test_exchanges_mend_a_deal_that_gave_one_model_all_the_fast_nodes():
    shares = (ModelShare(problem=BIG), ModelShare(problem=SMALL, weight=4.0))
    dealt = planned(
        shares,
        (frozenset({"n0", "n1", "n2"}), frozenset({"n3"})),
        options=OPTIONS,
        seconds=5.0,
        cancel=NeverCancelled(),
    )
    mended = exchange_nodes(
        kinds_of(shares),
        dealt,
        options=OPTIONS,
        stop=Stop(time_limit_s=20.0, cancel=NeverCancelled(), clock=lambda: 0.0),
        enough_tokens_per_s=float("inf"),
    )
    assert mended.level_tokens_per_s > dealt.level_tokens_per_s
    assert mended.level_tokens_per_s >= 0.95 * best_level(shares)
    assert not mended.nodes[0] & mended.nodes[1]
    for own, plan in zip(mended.nodes, mended.plans, strict=True):
        assert set(plan.placement.layers) <= own


class Cancelled:
    def is_cancelled(self):
        return True


def test_a_cancelled_search_deals_once_and_keeps_what_it_has():
    shares = (ModelShare(problem=BIG), ModelShare(problem=SMALL))
    kinds = kinds_of(shares)
    early = highest_deal(shares, kinds, weights=[1.0, 1.0], cancel=Cancelled())
    highest = highest_deal(shares, kinds, weights=[1.0, 1.0], cancel=NeverCancelled())
    assert early.level_tokens_per_s < highest.level_tokens_per_s
    assert early.bound_tokens_per_s >= highest.bound_tokens_per_s
    mix = plan_models(shares, options=OPTIONS, cancel=Cancelled())
    assert mix.level_tokens_per_s > 0
    assert mix.level_bound_tokens_per_s == early.bound_tokens_per_s
