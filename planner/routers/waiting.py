"""Admission order of waiting requests: one queue, but each component admits separately."""

from planner.domain.placement import Placement
from planner.routers.base import RequestSize, Router


def kept_for(size: RequestSize, *, router: Router, placement: Placement) -> frozenset[str]:
    """Nodes that later requests must not use while one of this size waits: its components' nodes.

    A component is first come, first served, so that no large request starves. A component that
    could not serve it even if idle is open to later requests.
    """
    entered = router.entered_when_idle(size)
    components = placement.components or (frozenset(placement.layers),)
    return frozenset().union(*(nodes for nodes in components if nodes & entered))
