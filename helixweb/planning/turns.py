"""Which long tasks wait for each other, so that no search waits for what may as well come later.

A worker has a process for searches, one for what follows them, and one for what is quick: pushing a
deployment, looking after nodes (CELERY_WORKER_CONCURRENCY).
"""

from datetime import datetime

from django.conf import settings

from helixweb.common import leases
from helixweb.common.models import LeasedTask
from helixweb.planning.models import Explanation, ModelMix, PlanRun, Simulation

Status = LeasedTask.Status
Kinds = tuple[type[LeasedTask], ...]
SEARCHES: Kinds = (PlanRun, ModelMix)
FOLLOWERS: Kinds = (Explanation, Simulation)


def claim(kind: type[LeasedTask], *, task_id: int, now: datetime) -> int | None:
    """Take the task for a new attempt; None if it is owned, finished, or must wait for its turn."""
    beside = _beside(kind)
    return leases.claim_in_turn(kind, task_id=task_id, beside=beside, most=_most(beside), now=now)


def waiting(kind: type[LeasedTask], *, now: datetime) -> list[tuple[type[LeasedTask], int]]:
    """Kind and id of the tasks whose turn it is beside those of `kind`: the oldest of each kind.

    None while others have the turn: they ask themselves when they end.
    """
    beside = _beside(kind)
    room = _most(beside) - len(leases.live(beside, now=now))
    if room <= 0:
        return []
    return [
        (each, pk)
        for each in beside
        for pk in each._default_manager.filter(status=Status.QUEUED)
        .order_by("pk")
        .values_list("pk", flat=True)[:room]
    ]


def _beside(kind: type[LeasedTask]) -> Kinds:
    return SEARCHES if kind in SEARCHES else FOLLOWERS


def _most(beside: Kinds) -> int:
    most: int = settings.HELIX_CONCURRENT_SOLVES if beside is SEARCHES else 1
    return most
