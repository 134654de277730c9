"""Which links of a cluster the plan at work sends over."""

from typing import Any

from helixweb.deployment.models import LIVE, Deployment
from helixweb.planning.stored import kept
from planner.domain.cluster import COORDINATOR, SINK, SOURCE
from planner.domain.plan import Plan
from planner.domain.problem import Problem


def links_in_use(*, cluster_id: int, **_: Any) -> frozenset[tuple[str, str]]:
    """Answers `inventory.signals.links_asked`: (source, target) of every link that carries flow."""
    live = (
        Deployment.objects.filter(cluster=cluster_id, status__in=LIVE)
        .select_related("plan")
        .only("plan__created_at")
        .first()
    )
    if live is None:
        return frozenset()
    return _used(live.plan)


@kept
def _used(_problem: Problem, plan: Plan) -> frozenset[tuple[str, str]]:
    return frozenset(
        (_name(edge.source), _name(edge.target))
        for edge in plan.flow.edges
        if edge.flow_tokens_per_s > 0
    )


def _name(vertex: str) -> str:
    return COORDINATOR if vertex in (SOURCE, SINK) else vertex
