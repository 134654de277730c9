"""What coordinators are called among the peers of a cluster's data plane.

The first one has the name that problems give it; a further one, of which nodes know nothing in a
plan, has a number behind it. No node is called so.
"""

from collections.abc import Collection

from planner.domain.cluster import COORDINATOR

_FURTHER = f"{COORDINATOR}:"


def is_coordinator(peer: str) -> bool:
    """Whether a peer of that name faces clients; all others are stages."""
    return peer == COORDINATOR or peer.startswith(_FURTHER)


def free_name(taken: Collection[str]) -> str:
    """What one more coordinator is called beside those of these names."""
    if COORDINATOR not in taken:
        return COORDINATOR
    number = 2
    while f"{_FURTHER}{number}" in taken:
        number += 1
    return f"{_FURTHER}{number}"
