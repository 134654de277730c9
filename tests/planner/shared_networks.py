"""Tiny problems with shared bandwidth, and the flow of their placements written path by path."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import highspy
import numpy as np
from hypothesis import strategies as st
from tiny_problems import ACTIVATION_BYTES, TOKEN_BYTES, placed_problems, tiny_problem

from planner.domain.cluster import COORDINATOR, Link, SharedBandwidth
from planner.domain.placement import Placement
from planner.domain.problem import Problem


def sharing(problem: Problem, *shared: SharedBandwidth) -> Problem:
    return replace(problem, cluster=replace(problem.cluster, shared=shared))


def egress(name: str, *members: str, tokens_per_s: float, scope: str = "region") -> SharedBandwidth:
    """Room for that many tokens/s of activations out of the members."""
    return SharedBandwidth(
        name=name,
        members=members,
        direction="egress",
        bandwidth_bytes_per_s=tokens_per_s * ACTIVATION_BYTES,
        scope=scope,
    )


def in_regions(problem: Problem, regions: Sequence[str]) -> Problem:
    """The nodes in these regions, in order, and links from any region to any, as ample as within.

    The coordinator is in a region of its own.
    """
    cluster = problem.cluster
    within = cluster.region_links[0]
    ends = {*regions, cluster.coordinator_region}
    return replace(
        problem,
        cluster=replace(
            cluster,
            nodes=tuple(
                replace(node, region=region)
                for node, region in zip(cluster.nodes, regions, strict=True)
            ),
            region_links=tuple(
                Link(
                    source=source,
                    target=target,
                    bandwidth_bytes_per_s=within.bandwidth_bytes_per_s,
                    latency_s=within.latency_s,
                )
                for source in sorted(ends)
                for target in sorted(ends)
            ),
        ),
    )


def pipelines(
    problem: Problem, placed: Placement, *, partial_inference: bool
) -> Iterator[tuple[str, ...]]:
    """Every order of nodes that runs all layers, by trying all orders (constraint 4 of §4.4)."""
    for count in range(1, len(placed.layers) + 1):
        for nodes in itertools.permutations(placed.layers, count):
            end = 0
            for name in nodes:
                held = placed.layers[name]
                fits = held.first <= end < held.end if partial_inference else held.first == end
                if not fits:
                    break
                end = held.end
            else:
                if end == problem.model.num_layers and placed.layers[nodes[0]].first == 0:
                    yield nodes


def max_flow_over_pipelines(
    problem: Problem, placed: Placement, *, partial_inference: bool, max_hops: int | None = None
) -> float:
    """One variable per pipeline; a row per node, link and shared bandwidth."""
    paths = [
        path
        for path in pipelines(problem, placed, partial_inference=partial_inference)
        if (max_hops is None or len(path) <= max_hops) and _is_linked(problem, path)
    ]
    rows: dict[tuple[str, ...], dict[int, float]] = {}
    limits: dict[tuple[str, ...], float] = {}
    for number, path in enumerate(paths):
        for name in path:
            held = placed.layers[name]
            limits[("node", name)] = problem.profile_of(name).tokens_per_s[len(held) - 1]
            rows.setdefault(("node", name), {})[number] = 1.0
        for source, target in itertools.pairwise((COORDINATOR, *path, COORDINATOR)):
            link = problem.cluster.link_between(source, target)
            size = TOKEN_BYTES if COORDINATOR in (source, target) else ACTIVATION_BYTES
            limits[(source, target)] = link.bandwidth_bytes_per_s / size
            rows.setdefault((source, target), {})[number] = 1.0
            for shared in problem.cluster.shared:
                members = problem.cluster.members_of(shared)
                ours, theirs = (
                    (source, target) if shared.direction == "egress" else (target, source)
                )
                if ours in members and not (shared.scope == "region" and theirs in members):
                    key = ("shared", shared.name, "bytes")
                    limits[key] = shared.bandwidth_bytes_per_s / ACTIVATION_BYTES
                    row = rows.setdefault(key, {})
                    row[number] = row.get(number, 0.0) + size / ACTIVATION_BYTES
    return _maximum(len(paths), rows, limits)


def _is_linked(problem: Problem, path: tuple[str, ...]) -> bool:
    hops = itertools.pairwise((COORDINATOR, *path, COORDINATOR))
    return all(problem.cluster.link_between(source, target) is not None for source, target in hops)


def _maximum(
    num_paths: int,
    rows: dict[tuple[str, ...], dict[int, float]],
    limits: dict[tuple[str, ...], float],
) -> float:
    if num_paths == 0:
        return 0.0
    unit = max(value for key, value in limits.items() if key[0] == "node")
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("primal_feasibility_tolerance", 1e-10)  # of the unit; theirs is 1e-7
    solver.setOptionValue("dual_feasibility_tolerance", 1e-10)
    for _ in range(num_paths):
        solver.addVar(0.0, highspy.kHighsInf)
    for number in range(num_paths):
        solver.changeColCost(number, -1.0)
    for key, row in rows.items():
        columns = np.array(list(row), dtype=np.int32)
        solver.addRow(
            -highspy.kHighsInf, limits[key] / unit, len(row), columns, np.array(list(row.values()))
        )
    solver.run()
    return -solver.getObjectiveValue() * unit


@st.composite
def shared_problems(draw: st.DrawFn, *, max_nodes: int = 4) -> tuple[Problem, Placement]:
    """A placed problem and one or two shared bandwidths, often binding."""
    problem, placed = draw(placed_problems(max_nodes=max_nodes))
    ends = [COORDINATOR, *(node.name for node in problem.cluster.nodes)]
    shared = [
        SharedBandwidth(
            name=f"share{number}",
            members=tuple(draw(st.lists(st.sampled_from(ends), min_size=1, unique=True))),
            direction=draw(st.sampled_from(["egress", "ingress"])),
            bandwidth_bytes_per_s=draw(st.floats(min_value=1.0, max_value=5e5)),
            scope=draw(st.sampled_from(["region", "nic"])),
        )
        for number in range(draw(st.integers(1, 2)))
    ]
    return sharing(problem, *shared), placed


@st.composite
def regional_problems(draw: st.DrawFn) -> Problem:
    """Three nodes of two or three regions, each of which shares its way out, in, or both.

    Node by node, some of them share a card as well.
    """
    num_layers = draw(st.integers(2, 4))
    speed = st.floats(min_value=1.0, max_value=100.0)
    speeds = [
        sorted(draw(st.lists(speed, min_size=1, max_size=num_layers)), reverse=True)
        for _ in range(3)
    ]
    regions = draw(st.sampled_from([("a", "b", "c"), ("a", "a", "b")]))
    problem = in_regions(tiny_problem(speeds, num_layers=num_layers), regions)
    limited = draw(
        st.lists(
            st.tuples(
                st.sampled_from([*sorted(set(regions)), "n0", "n1", "n2"]),
                st.sampled_from(["egress", "ingress"]),
            ),
            min_size=1,
            unique=True,
        )
    )
    shared = [
        SharedBandwidth(
            name=f"{direction} of {member}",
            members=(member,),
            direction=direction,
            bandwidth_bytes_per_s=draw(st.floats(min_value=1.0, max_value=50.0)) * ACTIVATION_BYTES,
            scope="nic" if member.startswith("n") else "region",
        )
        for member, direction in limited
    ]
    return sharing(problem, *shared)
