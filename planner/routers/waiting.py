"""Who may pass whom while waiting: one queue, but each component has its own admission."""

from planner.domain.placement import Placement
from planner.routers.base import RequestSize, Router


def kept_for(size: RequestSize, *, router: Router, placement: Placement) -> frozenset[str]:
    """Nodes to keep from later requests while one of this size waits: its components' nodes.

    Within a component it is first come, first served, so that no large request starves. A component
    that could never serve it, even idle, is open to those behind.
    """
    entered = router.entered_when_idle(size)
    components = placement.components or (frozenset(placement.layers),)
    return frozenset().union(*(nodes for nodes in components if nodes & entered))
