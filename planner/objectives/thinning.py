"""Fewer nodes to simulate: of every wide stage the same share, like nodes for like ones, and where
that is not enough, some of the components, since these serve apart.
"""

from planner.domain.placement import LayerRange, Placement
from planner.domain.problem import Problem


def thinned(problem: Problem, placement: Placement, *, most_nodes: int) -> Placement:
    """The placement with about `most_nodes`, evenly from all that hold the same layers.

    At least one of them stays, and one component, so a chain of narrow stages stays larger.
    """
    if len(placement.layers) <= most_nodes:
        return placement
    alike: dict[tuple[int, LayerRange], list[str]] = {}
    for name, held in placement.layers.items():
        alike.setdefault((placement.component_of(name), held), []).append(name)
    share = most_nodes / len(placement.layers)
    kept: set[str] = set()
    for names in alike.values():
        # Every n-th of the nodes sorted by kind and region, so the mix is preserved.
        ordered = sorted(names, key=lambda name: (*_kind(problem, name), name))
        count = max(1, round(share * len(ordered)))
        kept.update(
            ordered[(2 * number + 1) * len(ordered) // (2 * count)] for number in range(count)
        )
    left = placement.without(placement.layers.keys() - kept)
    while len(left.components) > 1 and len(left.layers) > most_nodes:
        left = left.without(left.components[-1])
    return left


def _kind(problem: Problem, name: str) -> tuple[str, str]:
    node = problem.cluster.node(name)
    return node.compute_profile, node.region
