"""The states of a node on its way to what the site wants of it."""

from enum import StrEnum


class Phase(StrEnum):
    """Where a node is on its way to the desired state."""

    IDLE = "idle"
    LOADING = "loading"
    READY = "ready"
    STOPPING = "stopping"
    FAILED = "failed"
