"""Routing weights of balanced flows, also with components' shares that were set by hand."""

from collections.abc import Mapping, Sequence

from planner.balanced_flow import balanced_flow
from planner.domain.cluster import SOURCE
from planner.domain.errors import InvalidPlacement
from planner.domain.placement import Placement
from planner.domain.problem import Problem
from planner.max_flow import routing_weights


def balanced_weights(
    problem: Problem, placement: Placement, *, partial_inference: bool
) -> dict[str, dict[str, float]]:
    """Routing weights in tokens/s of the balanced flow: weights[u][v], SOURCE to SINK."""
    return routing_weights(balanced_flow(problem, placement, partial_inference=partial_inference))


def with_component_shares(
    weights: Mapping[str, Mapping[str, float]], placement: Placement, shares: Sequence[float]
) -> dict[str, dict[str, float]]:
    """The weights with the source's divided among components by `shares`; within one as before.

    Only the shares' ratios matter. A component without weight gets none. Raises InvalidPlacement.
    """
    count = max(1, len(placement.components))
    if len(shares) != count or any(share < 0 for share in shares) or not sum(shares) > 0:
        raise InvalidPlacement(
            f"component shares are {list(shares)}; give {count} numbers of 0 or more, one for each "
            "component of the placement, and one above 0"
        )
    entering = weights.get(SOURCE, {})
    own = [0.0] * count
    for name, weight in entering.items():
        own[placement.component_of(name)] += weight
    unit = sum(own) / sum(shares)
    shared = {
        name: weight / own[component] * shares[component] * unit
        for name, weight in entering.items()
        for component in (placement.component_of(name),)
    }
    changed = {source: dict(targets) for source, targets in weights.items()}
    changed[SOURCE] = {name: weight for name, weight in shared.items() if weight > 0}
    return changed
