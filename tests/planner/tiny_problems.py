"""Problems small enough to be checked by trying everything, and the oracles that do so."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from hypothesis import strategies as st

from planner.bounds.best import (
    quick_bounds_tokens_per_s,
    slow_link_bounds_tokens_per_s,
    upper_bound_tokens_per_s,
)
from planner.bounds.node_kinds import NO_RULES
from planner.checked_plan import checked_plan
from planner.domain.cluster import COORDINATOR, Cluster, Link, Node
from planner.domain.model_spec import ModelSpec
from planner.domain.placement import LayerRange, Placement
from planner.domain.plan import Plan
from planner.domain.problem import Problem, Workload
from planner.domain.profile import ComputeProfile
from planner.domain.rules import PlacementRules

ACTIVATION_BYTES = 100.0
TOKEN_BYTES = 2.0
AMPLE_TOKENS_PER_S = 1e7


def tiny_problem(
    speeds: Sequence[Sequence[float]],
    *,
    num_layers: int,
    link_tokens_per_s: Mapping[tuple[str, str], float] | None = None,
) -> Problem:
    """Node i is called f"n{i}", holds up to len(speeds[i]) layers, and speeds[i][j-1] is its T_j.

    Links default to ample for every pair. Nodes of equal speeds share a profile.
    """
    profile_names = {tuple(tokens_per_s): f"p{tuple(tokens_per_s)}" for tokens_per_s in speeds}
    return Problem(
        name="tiny",
        model=ModelSpec(
            name="tiny-model",
            num_layers=num_layers,
            activation_bytes_per_token=ACTIVATION_BYTES,
            token_bytes=TOKEN_BYTES,
            bytes_per_layer=1e6,
        ),
        workload=Workload(mean_prompt_tokens=10, mean_output_tokens=10),
        compute_profiles={
            name: ComputeProfile(
                name=name,
                gpu="test",
                vram_bytes=1e9,
                max_layers=len(tokens_per_s),
                tokens_per_s=tokens_per_s,
                kv_capacity_token_layers=(1000.0,) * len(tokens_per_s),
            )
            for tokens_per_s, name in profile_names.items()
        },
        cluster=Cluster(
            name="tiny",
            coordinator_region="here",
            nodes=tuple(
                Node(
                    name=f"n{index}",
                    region="here",
                    compute_profile=profile_names[tuple(tokens_per_s)],
                )
                for index, tokens_per_s in enumerate(speeds)
            ),
            region_links=(
                Link(
                    source="here",
                    target="here",
                    bandwidth_bytes_per_s=AMPLE_TOKENS_PER_S * ACTIVATION_BYTES,
                    latency_s=0.001,
                ),
            ),
            links=tuple(
                Link(
                    source=source,
                    target=target,
                    bandwidth_bytes_per_s=tokens_per_s
                    * (TOKEN_BYTES if COORDINATOR in (source, target) else ACTIVATION_BYTES),
                    latency_s=0.001,
                )
                for (source, target), tokens_per_s in (link_tokens_per_s or {}).items()
            ),
        ),
    )


def placement(**layers: tuple[int, int]) -> Placement:
    """placement(n0=(0, 2), n1=(2, 4))"""
    return Placement(
        layers={name: LayerRange(first=first, end=end) for name, (first, end) in layers.items()}
    )


def plan_by_hand(
    problem: Problem,
    layers: Placement,
    *,
    partial_inference: bool = False,
    max_hops: int | None = None,
) -> Plan:
    """The checked plan of a placement that no search found."""
    return checked_plan(
        problem,
        layers,
        partial_inference=partial_inference,
        max_hops=max_hops,
        upper_bound_tokens_per_s=upper_bound_tokens_per_s(problem),
        placer="by hand",
        solver="none",
        stop_reason="given",
        elapsed_s=0.0,
    )


def one_hop_plan() -> tuple[Problem, Plan]:
    """A plan for one hop, whose placement has faster pipelines of two."""
    problem = tiny_problem([[10.0, 10.0], [100.0], [100.0]], num_layers=2)
    layers = placement(n0=(0, 2), n1=(0, 1), n2=(1, 2))
    return problem, plan_by_hand(problem, layers, max_hops=1)


def all_placements(problem: Problem) -> Iterator[Placement]:
    """Every placement, nodes left out included."""
    num_layers = problem.model.num_layers
    choices = [
        [None]
        + [
            LayerRange(first=first, end=first + held)
            for held in range(1, problem.profile_of(node.name).max_layers + 1)
            for first in range(num_layers - held + 1)
        ]
        for node in problem.cluster.nodes
    ]
    for ranges in itertools.product(*choices):
        yield Placement(
            layers={
                node.name: held
                for node, held in zip(problem.cluster.nodes, ranges, strict=True)
                if held is not None
            }
        )


def smallest_cut_by_enumeration(
    problem: Problem, placed: Placement, *, partial_inference: bool
) -> float:
    """Max flow = min cut: the lightest of all 2**vertices cuts, written from Helix §4.3's words."""
    names = list(placed.layers)
    edges: list[tuple[str, str, float]] = []

    def add_link(source: str, target: str, tail: str, head: str, token_bytes: float) -> None:
        link = problem.cluster.link_between(source, target)
        if link is not None:
            edges.append((tail, head, link.bandwidth_bytes_per_s / token_bytes))

    for name in names:
        held = placed.layers[name]
        speed = problem.profile_of(name).tokens_per_s[held.end - held.first - 1]
        edges.append((f"{name} in", f"{name} out", speed))
        if held.first == 0:
            add_link(COORDINATOR, name, "source", f"{name} in", TOKEN_BYTES)
        if held.end == problem.model.num_layers:
            add_link(name, COORDINATOR, f"{name} out", "sink", TOKEN_BYTES)
        for other in names:
            after = placed.layers[other]
            needs = (
                after.first <= held.end < after.end
                if partial_inference
                else (after.first == held.end)
            )
            if needs:
                add_link(name, other, f"{name} out", f"{other} in", ACTIVATION_BYTES)
    vertices = [f"{name} {side}" for name in names for side in ("in", "out")]
    lightest = float("inf")
    for chosen in itertools.product((False, True), repeat=len(vertices)):
        side = {"source"} | {v for v, is_in in zip(vertices, chosen, strict=True) if is_in}
        weight = sum(cap for tail, head, cap in edges if tail in side and head not in side)
        lightest = min(lightest, weight)
    return lightest


def coverage(problem: Problem, placed: Placement) -> float:
    """min over layers of the speed of the nodes that hold it: the max flow of a partial-inference
    placement whose links do not bind (an interval graph's vertex cuts are its points)."""
    return min(
        sum(
            problem.profile_of(name).tokens_per_s[len(held) - 1]
            for name, held in placed.layers.items()
            if held.first <= layer < held.end
        )
        for layer in range(problem.model.num_layers)
    )


speeds_of_a_node = st.lists(
    st.floats(min_value=0.01, max_value=5000.0), min_size=1, max_size=3
).map(lambda speeds: tuple(sorted(speeds, reverse=True)))


@st.composite
def problems(draw: st.DrawFn, *, max_nodes: int = 3, binding_links: bool = True) -> Problem:
    """2 to `max_nodes` nodes, 2 to 4 layers, links from far too slow to ample."""
    num_nodes = draw(st.integers(2, max_nodes))
    num_layers = draw(st.integers(2, 4))
    speeds = [draw(speeds_of_a_node)[:num_layers] for _ in range(num_nodes)]
    names = [COORDINATOR, *(f"n{index}" for index in range(num_nodes))]
    pairs = list(itertools.permutations(names, 2))
    links = {}
    if binding_links:
        for pair in draw(st.lists(st.sampled_from(pairs), unique=True)):
            links[pair] = draw(st.floats(min_value=0.01, max_value=5000.0))
    return tiny_problem(speeds, num_layers=num_layers, link_tokens_per_s=links)


@st.composite
def placements_of(draw: st.DrawFn, problem: Problem) -> Placement:
    """Any placement that the problem allows, nodes left out included."""
    layers = {}
    for node in problem.cluster.nodes:
        held = draw(st.integers(0, problem.profile_of(node.name).max_layers))
        if held:
            first = draw(st.integers(0, problem.model.num_layers - held))
            layers[node.name] = LayerRange(first=first, end=first + held)
    return Placement(layers=layers)


@st.composite
def placed_problems(
    draw: st.DrawFn, *, max_nodes: int = 4, binding_links: bool = True
) -> tuple[Problem, Placement]:
    problem = draw(problems(max_nodes=max_nodes, binding_links=binding_links))
    return problem, draw(placements_of(problem))


def proven_bounds(problem: Problem, *, rules: PlacementRules = NO_RULES) -> Iterator[float]:
    """Ever tighter bounds on the flow, by all methods."""
    known = math.inf
    for known in quick_bounds_tokens_per_s(problem, rules=rules):
        yield known
    yield from slow_link_bounds_tokens_per_s(problem, rules=rules, known_bound_tokens_per_s=known)
