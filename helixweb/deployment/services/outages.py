"""A deployment that nothing serves since nodes were lost: since when, and what is done about it.

Reads only.
"""

from dataclasses import dataclass
from datetime import datetime

from helixweb.deployment.coordinators import heard_reports
from helixweb.deployment.models import LOST, SERVING, Deployment, PhaseChange, Repair, Status
from helixweb.deployment.services.repairing import changes_of, shown_repair, stops_service
from runtime.protocol.phases import Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """Nodes that are lost, and without which no pipeline and no instance serves `deployment`.

    `repair` is what is done about it, None while nothing is. Once that is deployed, `loaded` of
    its `stages` are ready. `waiting` requests are held by the coordinators. `since` is None where
    it was not recorded.
    """

    deployment: Deployment
    lost: tuple[str, ...]
    since: datetime | None
    repair: Repair | None
    waiting: int
    stages: int = 0
    loaded: int = 0

    @property
    def is_loading(self) -> bool:
        """Whether nodes load what serves again."""
        return self.stages > 0


def outage_of(deployment: Deployment, *, now: datetime) -> Outage | None:
    """None while requests are served, or nodes load for the first time."""
    if deployment.status not in SERVING:
        return None
    if deployment.status == Status.DEPLOYING:
        return _while_loading(deployment, now=now)
    lost = tuple(sorted(stops_service(deployment, changes_of(deployment, now=now).lost, now=now)))
    if not lost:
        return None
    repair = shown_repair(deployment, now=now)
    return Outage(
        deployment=deployment,
        lost=lost,
        since=_lost_at(deployment, lost) if repair is None else repair.noticed_at,
        repair=repair,
        waiting=_waiting(deployment, now=now),
    )


def _while_loading(deployment: Deployment, *, now: datetime) -> Outage | None:
    """Of a deployment that takes the place of one that nothing serves."""
    if deployment.plan.run_id is None:
        return None
    repairs = Repair.objects.filter(run=deployment.plan.run_id, state=Repair.State.DEPLOYED)
    repair = repairs.filter(unmoved_tokens_per_s__lte=0).exclude(lost=[]).first()
    if repair is None:
        return None
    phases = deployment.assignments.values_list("phase", "observed_generation")
    return Outage(
        deployment=deployment,
        lost=tuple(repair.lost),
        since=repair.noticed_at,
        repair=repair,
        waiting=_waiting(deployment, now=now),
        stages=len(phases),
        loaded=sum(told == (Phase.READY.value, deployment.generation) for told in phases),
    )


def _lost_at(deployment: Deployment, lost: tuple[str, ...]) -> datetime | None:
    """When the last of these nodes was lost."""
    changes = PhaseChange.objects.filter(
        assignment__deployment=deployment, assignment__node_name__in=lost, phase=LOST
    )
    return changes.order_by("-at").values_list("at", flat=True).first()


def _waiting(deployment: Deployment, *, now: datetime) -> int:
    told = heard_reports(deployment.cluster_id, now=now)
    return sum(told.values_list("report__requests_waiting", flat=True))
