"""A problem with one more of each resource: a node of every kind, 10 % of a limiting bandwidth."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from planner.capacity import max_layers
from planner.domain.cluster import Cluster, Link, Node, free_name
from planner.domain.flow import Flow
from planner.domain.problem import Problem

ADDED_NODE = "added-node"
_MORE_BANDWIDTH = 1.1


def with_one_more_node(problem: Problem) -> Iterator[tuple[str, Problem]]:
    """("+1 PROFILE in REGION", the problem with that node) for every kind that the cluster has.

    The added node has the links of the first node of its kind, and a network card of its own. The
    two are linked as the first is with another node of its region.
    """
    seen = set()
    for node in problem.cluster.nodes:
        kind = (node.compute_profile, node.region)
        if kind in seen or max_layers(problem, node.name) == 0:
            continue
        seen.add(kind)
        cluster = with_a_twin(problem.cluster, node)
        yield f"+1 {kind[0]} in {kind[1]}", replace(problem, cluster=cluster)


def with_more_bandwidth(problem: Problem, flow: Flow) -> Iterator[tuple[str, Problem]]:
    """("+10 % ...", the problem with it) for every bandwidth in the flow's minimum cut.

    A link that only its regions define is widened together with all between these regions.
    """
    cluster = problem.cluster
    named = {(link.source, link.target) for link in cluster.links}
    ends_of_cut = [
        tuple("coordinator" if end in ("source", "sink") else end for end in edge)
        for edge in flow.min_cut.edges
    ]
    for source, target in sorted({(s, t) for s, t in ends_of_cut if (s, t) in named}):
        wider = replace(cluster, links=_wider(cluster.links, source, target))
        yield f"+10 % of link {source} -> {target}", replace(problem, cluster=wider)
    pairs = {
        (cluster.region_of(s), cluster.region_of(t)) for s, t in ends_of_cut if (s, t) not in named
    }
    for source, target in sorted(pairs):
        wider = replace(cluster, region_links=_wider(cluster.region_links, source, target))
        yield f"+10 % of every link {source} -> {target}", replace(problem, cluster=wider)
    for name in flow.min_cut.shared:
        shared = tuple(
            replace(share, bandwidth_bytes_per_s=share.bandwidth_bytes_per_s * _MORE_BANDWIDTH)
            if share.name == name
            else share
            for share in cluster.shared
        )
        wider = replace(cluster, shared=shared)
        yield f"+10 % of shared bandwidth {name}", replace(problem, cluster=wider)


def _wider(links: Iterable[Link], source: str, target: str) -> tuple[Link, ...]:
    """The links, of which that from source to target has more bandwidth."""
    return tuple(
        replace(link, bandwidth_bytes_per_s=link.bandwidth_bytes_per_s * _MORE_BANDWIDTH)
        if (link.source, link.target) == (source, target)
        else link
        for link in links
    )


def with_a_twin(cluster: Cluster, node: Node) -> Cluster:
    """The cluster with one more node like this, of the same links and a network card of its own."""
    twin = replace(node, name=free_name(ADDED_NODE, {one.name for one in cluster.nodes}))

    def renamed(old: str, end: str) -> str:
        return twin.name if end == old else end

    twin_links = [
        replace(
            link, source=renamed(node.name, link.source), target=renamed(node.name, link.target)
        )
        for link in cluster.links
        if node.name in (link.source, link.target)
    ]
    near = next(
        (n.name for n in cluster.nodes if n.region == node.region and n.name != node.name), None
    )
    if near is not None:
        twin_links += [
            replace(link, source=renamed(near, link.source), target=renamed(near, link.target))
            for link in cluster.links
            if {link.source, link.target} == {node.name, near}
        ]
    shared = []
    for share in cluster.shared:
        if node.name not in share.members:
            shared.append(share)
        elif share.members == (node.name,):
            name = free_name(share.name, {one.name for one in (*cluster.shared, *shared)})
            shared += [share, replace(share, name=name, members=(twin.name,))]
        else:
            shared.append(replace(share, members=(*share.members, twin.name)))
    return replace(
        cluster,
        nodes=(*cluster.nodes, twin),
        links=(*cluster.links, *twin_links),
        shared=tuple(shared),
    )
