"""Stages annealed on the estimate: scored as their placement is, and better than they began."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise

import pytest
from shared_networks import egress, sharing
from tiny_problems import placement, tiny_problem

from planner.balanced_flow import balanced_flow
from planner.capacity import shared_bytes_per_token, throughput_tokens_per_s
from planner.domain.cluster import COORDINATOR, SINK, SOURCE
from planner.domain.rules import PlacementRules
from planner.domain.serving_policy import PUBLISHED_POLICY, RUNTIME_POLICY
from planner.estimate.estimate import Estimator
from planner.estimate.load import loads_of
from planner.objectives.goal import FewestNodes, Goal, TokensPerPrice
from planner.objectives.stage_search import IDLE, Stages, StageSearch
from planner.timing import latency_s, layer_times_of

PROBLEM = tiny_problem(
    [[90.0, 50.0, 20.0], [90.0, 50.0], [40.0, 30.0, 20.0], [80.0, 30.0], [50.0, 20.0]],
    num_layers=5,
    link_tokens_per_s={("n0", "n1"): 30.0},
)
NAMES = tuple(node.name for node in PROBLEM.cluster.nodes)
START = placement(n0=(0, 3), n1=(3, 5), n3=(3, 5))
STAGGERED = placement(n0=(0, 3), n1=(0, 2), n2=(2, 5), n3=(3, 5))
SPREADS = [
    (START, {(SOURCE, "n0"): 4.0, ("n0", "n1"): 3.0, ("n0", "n3"): 1.0, ("n1", SINK): 3.0,
             ("n3", SINK): 1.0}),
    (STAGGERED, {(SOURCE, "n0"): 3.0, (SOURCE, "n1"): 1.0, ("n0", "n2"): 1.0, ("n0", "n3"): 2.0,
                 ("n1", "n2"): 1.0, ("n2", SINK): 2.0, ("n3", SINK): 2.0}),
]  # fmt: skip

HOPPING = replace(
    PROBLEM,
    compute_profiles={
        profile.name: replace(
            profile,
            layer_times=replace(
                layer_times_of(PROBLEM, name), head_s=0.1, handling_s=0.01, hop_s=0.02 * number
            ),
        )
        for number, name in enumerate(NAMES)
        for profile in (PROBLEM.profile_of(name),)
    },
)
CROWDED = sharing(
    PROBLEM,
    egress("uplink", "n0", "n1", tokens_per_s=15.0),
    egress("card", "n0", "n2", "coordinator", tokens_per_s=40.0, scope="nic"),
    replace(egress("door", "n3", "n4", tokens_per_s=20.0), direction="ingress"),
)
KINDS = ["own links", "shared bandwidth", "hops"]


GOALS = [
    Goal(),
    TokensPerPrice(price_of={name: 1.0 + number for number, name in enumerate(NAMES)}),
    FewestNodes(demand_tokens_per_s=5.0),
]


def search(
    *, problem=PROBLEM, policy=RUNTIME_POLICY, goal=None, rules=None, survives=False
) -> StageSearch:
    return StageSearch(
        Estimator(problem, policy=policy),
        names=NAMES,
        rules=rules or PlacementRules(),
        goal=goal or Goal(),
        survives=survives,
    )


@pytest.mark.parametrize("policy", [RUNTIME_POLICY, PUBLISHED_POLICY])
@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: goal.objective)
@pytest.mark.parametrize("problem", [PROBLEM, CROWDED, HOPPING], ids=KINDS)
def test_what_is_found_is_worth_its_placement_s_estimate(problem, policy, goal):
    stages = search(problem=problem, policy=policy, goal=goal)
    start = stages.stages_of(START)
    found = [stages.annealed(start, moves=250, hot=0.1, seed=seed) for seed in range(3)]
    assert found[0] == stages.annealed(start, moves=250, hot=0.1, seed=0)
    walked = stages.walked(start, moves=30, hot=0.1, seed=0)
    ends = [(one.score, one.best) for one in found] + [(stages.score(walked), walked)]
    for score, best in ends:
        worth = worth_by_estimate(stages, best, problem=problem, policy=policy, goal=goal)
        assert score == pytest.approx(worth, rel=1e-6)


def worth_by_estimate(search, stages, *, problem, policy, goal):
    """What the goal makes of the estimate of the placement that the stages are."""
    placed = search.placement_of(stages)
    speeds_of_stage = [
        {
            name: throughput_tokens_per_s(problem, name, length)
            for name, at in zip(NAMES, stages.stage_of, strict=True)
            if at == number
        }
        for number, length in enumerate(stages.lengths)
    ]
    spread = {
        (tail, head): tail_speed / sum(tails.values()) * head_speed / sum(heads.values())
        for tails, heads in pairwise([{SOURCE: 1.0}, *speeds_of_stage, {SINK: 1.0}])
        for tail, tail_speed in tails.items()
        for head, head_speed in heads.items()
    }
    rate = Estimator(problem, policy=policy).of_spread(placed, spread).decode_tokens_per_s
    return goal.value(rate, used=tuple(placed.layers), nodes=len(NAMES))


@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: goal.objective)
def test_what_survives_a_loss_is_the_least_estimate_that_any_loss_leaves(goal):
    stages, plain = search(goal=goal, survives=True), search(goal=goal)
    start = stages.stages_of(placement(n0=(0, 3), n2=(0, 3), n1=(3, 5), n3=(3, 5), n4=(3, 5)))
    found = stages.annealed(start, moves=2000, hot=0.1, seed=1)
    before = found.best.stage_of
    left = [
        plain.score(replace(found.best, stage_of=(*before[:at], IDLE, *before[at + 1 :])))
        for at in range(len(before))
    ]
    assert found.score == pytest.approx(min(left), rel=2e-3)
    assert found.score >= stages.score(start) > 0


def test_searches_in_several_threads_find_what_each_finds_alone():
    stages = search()
    start = stages.stages_of(START)

    def annealed(seed):
        return stages.annealed(start, moves=10_000, hot=0.1, seed=seed)

    seeds = (0, 0, 1, 2)
    alone = [annealed(seed) for seed in seeds]
    with ThreadPoolExecutor(len(seeds)) as threads:
        assert list(threads.map(annealed, seeds)) == alone


def test_stages_come_back_from_their_placement():
    stages = search()
    found = stages.stages_of(START)
    assert found == Stages(lengths=(3, 2), stage_of=(0, 1, -1, 1, -1))
    assert stages.placement_of(found) == START
    assert stages.stages_of(placement(n0=(0, 3), n1=(2, 4))) is None
    gap = stages.stages_of(placement(n0=(0, 3)))
    assert gap == Stages(lengths=(3, 2), stage_of=(0, -1, -1, -1, -1))
    assert stages.score(gap) == 0


@pytest.mark.parametrize("problem", [PROBLEM, CROWDED, HOPPING], ids=KINDS)
@pytest.mark.parametrize("policy", [RUNTIME_POLICY, PUBLISHED_POLICY])
def test_the_score_is_the_estimate_of_the_placement(problem, policy):
    estimator = Estimator(problem, policy=policy)
    flow = balanced_flow(PROBLEM, START, partial_inference=True)
    stages = search(problem=problem, policy=policy)
    score = stages.score(stages.stages_of(START))
    assert score == pytest.approx(estimator.of(START, flow).decode_tokens_per_s, rel=1e-6)


def test_stages_of_one_uplink_are_estimated_to_serve_no_more_than_it_carries():
    apart, together = search(), search(problem=CROWDED)
    stages = apart.stages_of(placement(n0=(0, 3), n1=(3, 5), n3=(3, 5)))
    workload = PROBLEM.workload
    tokens = 1 + workload.mean_prompt_tokens / workload.mean_output_tokens
    assert together.score(stages) < apart.score(stages)
    # n0 alone sends to n3 what leaves the uplink's members, and to n1 what does not.
    assert together.score(stages) * tokens * 30 / 80 <= 15.0


def test_annealing_finds_better_stages_and_keeps_to_the_rules():
    free, narrow = search(), search(rules=PlacementRules(max_hops=2, max_layers_of={"n0": 2}))
    start = free.stages_of(START)
    found = free.annealed(start, moves=3000, hot=0.1, seed=1)
    assert found.score > free.score(start)
    begin = narrow.stages_of(placement(n2=(0, 3), n1=(3, 5)))
    limited = narrow.annealed(begin, moves=3000, hot=0.5, seed=1).best
    assert len(limited.lengths) == 2
    layers = narrow.placement_of(limited).layers
    assert len(layers.get("n0", ())) <= 2
    assert sum(found.best.lengths) == sum(limited.lengths) == 5


def test_pinned_nodes_take_no_part():
    held = placement(n0=(0, 2)).layers
    assert search(rules=PlacementRules(pinned=held)).names == NAMES[1:]


def test_fewest_nodes_leaves_idle_what_the_demand_does_not_need():
    plenty = search()
    start = plenty.stages_of(START)
    demand = plenty.score(start) / 2
    few = search(goal=FewestNodes(demand_tokens_per_s=demand))
    best = few.annealed(start, moves=3000, hot=0.1, seed=0).best
    assert sum(stage >= 0 for stage in best.stage_of) < 3
    assert plenty.score(best) >= demand


def test_stages_without_a_link_or_with_too_many_layers_score_nothing():
    stages = search()
    assert stages.score(Stages(lengths=(3, 2), stage_of=(-1, 1, -1, 0, -1))) == 0
    alone = replace(PROBLEM.cluster, region_links=())
    unlinked = search(problem=replace(PROBLEM, cluster=alone))
    assert unlinked.score(stages.stages_of(START)) == 0


def test_links_are_those_of_the_cluster():
    stages = search()
    ends = [*NAMES, COORDINATOR]
    for row, source in enumerate(ends):
        for column, target in enumerate(ends):
            link = None if source == target else PROBLEM.cluster.link_between(source, target)
            bandwidth = 0.0 if link is None else link.bandwidth_bytes_per_s
            assert stages.links.bandwidth_MM[row, column] == bandwidth
            assert link is None or stages.links.latency_MM[row, column] == link.latency_s


@pytest.mark.parametrize("return_path", ["coordinator", "first_stage"])
@pytest.mark.parametrize(("placed", "spread"), SPREADS, ids=["stages", "staggered"])
@pytest.mark.parametrize("problem", [PROBLEM, CROWDED, HOPPING], ids=KINDS)
def test_connections_are_what_links_and_shared_bandwidths_say(problem, placed, spread, return_path):
    policy = replace(RUNTIME_POLICY, return_path=return_path)
    estimator = Estimator(problem, policy=policy)
    (load,) = loads_of(estimator.figures, placed, spread)
    names = sorted(
        placed.layers,
        key=lambda name: (placed.layers[name].first, placed.layers[name].end, name),
    )
    ends = [
        tuple(COORDINATOR if end < 0 else names[end] for end in pair)
        for pair in zip(load.tail_E.tolist(), load.head_E.tolist(), strict=True)
    ]
    outputs = estimator.lengths.output_tokens
    per_output = problem.model.activation_bytes_per_token
    per_output *= 1 + estimator.lengths.prompt_tokens / outputs
    sizes = [
        0.0 if COORDINATOR in pair else share * per_output
        for pair, share in zip(ends, load.share_E.tolist(), strict=True)
    ]
    for edge, pair in enumerate(ends):
        link = problem.cluster.link_between(*pair)
        most, crowding = link.bandwidth_bytes_per_s, 0.0
        for shared in problem.cluster.shared:
            members = problem.cluster.members_of(shared)
            takes = [
                shared_bytes_per_token(problem, shared, *other, members=members) > 0
                for other in ends
            ]
            if takes[edge]:
                others = sum(size for size, is_in in zip(sizes, takes, strict=True) if is_in)
                most = min(most, shared.bandwidth_bytes_per_s)
                crowding = max(crowding, (others - sizes[edge]) / shared.bandwidth_bytes_per_s)
        assert load.bandwidth_E[edge] == most
        assert load.latency_E[edge] == pytest.approx(latency_s(problem, link))
        assert load.crowding_E[edge] == pytest.approx(crowding)
    assert load.return_s == pytest.approx(way_back_s(problem, names, load, policy))


def way_back_s(problem, names, load, policy):
    """Over all pairs of a last node and a first one that are not the same node of a request."""
    is_straight = policy.return_path == "first_stage"
    entering, leaving = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0)
    for tail, head, share in zip(load.tail_E, load.head_E, load.share_E, strict=True):
        if tail < 0:
            entering[names[head]] += share
        if head < 0:
            leaving[names[tail]] += share
    if is_straight:
        for name, through in zip(names, load.share_N, strict=True):
            alone = entering[name] * leaving[name] / through
            entering[name] -= alone
            leaving[name] -= alone
    link_between, total = problem.cluster.link_between, 0.0
    for last, sent in leaving.items():
        for first, taken in entering.items():
            straight = link_between(last, first) if is_straight and last != first else None
            ways = [straight]
            if straight is None:
                ways = [link_between(last, COORDINATOR), link_between(COORDINATOR, first)]
            total += sent * taken * sum(latency_s(problem, way) for way in ways)
    return total / (sum(entering.values()) or 1.0)


def test_hops_and_handling_are_estimated():
    flow = balanced_flow(PROBLEM, START, partial_inference=True)
    stages = search(problem=HOPPING)
    for row, column in ((0, 1), (1, 3), (3, 1)):
        link = HOPPING.cluster.link_between(NAMES[row], NAMES[column])
        assert stages.links.latency_MM[row, column] == pytest.approx(
            link.latency_s + 0.02 * (row + column) / 2
        )
    link = HOPPING.cluster.link_between(COORDINATOR, NAMES[3])
    assert stages.links.latency_MM[-1, 3] == pytest.approx(link.latency_s + 0.06)
    plain, hopping = (
        Estimator(problem, policy=RUNTIME_POLICY).of(START, flow) for problem in (PROBLEM, HOPPING)
    )
    assert hopping.decode_tokens_per_s < plain.decode_tokens_per_s
