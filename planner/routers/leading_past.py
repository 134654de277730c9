"""Whether requests can do without some nodes, by the routes that a plan's weights name; pure."""

from collections.abc import Collection, Mapping

from planner.domain.cluster import SINK, SOURCE
from planner.routers.base import Hop


def leads_past(
    nodes: Collection[str],
    *,
    weights: Mapping[str, Mapping[str, float]],
    cut: Collection[Hop] = (),
) -> bool:
    """Whether a route with weight leads from source to sink around `nodes` and `cut` hops."""
    seen, to_visit = {SOURCE}, [SOURCE]
    while to_visit:
        vertex = to_visit.pop()
        for target, weight in weights.get(vertex, {}).items():
            if weight <= 0 or target in seen or target in nodes or (vertex, target) in cut:
                continue
            if target == SINK:
                return True
            seen.add(target)
            to_visit.append(target)
    return False
