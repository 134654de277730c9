"""The links that a plan at work sends over, as `bottleneck` judges them."""

from datetime import datetime

from helixweb.deployment.link_view import link_rows
from helixweb.deployment.live_links import live_links
from helixweb.deployment.models import Deployment, LinkWeights
from helixweb.monitoring.bottleneck import LinkLoad
from helixweb.planning.stored import kept
from planner.domain.cluster import COORDINATOR, SINK, SOURCE
from planner.domain.flow import EdgeFlow
from planner.domain.plan import Plan
from planner.domain.problem import Problem


def link_loads(deployment: Deployment, *, now: datetime) -> list[LinkLoad]:
    """Of links that carry planned flow and whose rate, or stall, their sender has told."""
    flows = _flows(deployment.plan)
    links = [link for link in live_links(deployment, now=now) if link.ends in flows]
    if not links:
        return []
    weights = LinkWeights.objects.filter(
        deployment=deployment, generation=deployment.generation
    ).first()
    loads = []
    for row in link_rows(deployment, links):
        measured, counted = row.stats.bandwidth_bytes_per_s or 0.0, row.planned_bytes_per_s
        if counted is None or not (measured or row.stats.stalled):
            continue
        edge = flows[row.source, row.target]
        loads.append(
            LinkLoad(
                name=f"{row.source} → {row.target}",
                measured_bytes_per_s=measured,
                counted_bytes_per_s=counted,
                planned_tokens_per_s=edge.flow_tokens_per_s,
                carries_tokens_per_s=edge.capacity_tokens_per_s * measured / counted,
                queue_s=row.stats.waiting_bytes / measured if measured else 0.0,
                slow=row.slow,
                stalled=row.stats.stalled,
                follows=weights is not None and weights.counts,
            )
        )
    return loads


@kept
def _flows(_problem: Problem, plan: Plan) -> dict[tuple[str, str], EdgeFlow]:
    """Of links that carry planned flow, by their ends."""
    return {_ends(edge): edge for edge in plan.flow.edges if edge.flow_tokens_per_s > 0}


def _ends(edge: EdgeFlow) -> tuple[str, str]:
    source = COORDINATOR if edge.source == SOURCE else edge.source
    return source, COORDINATOR if edge.target == SINK else edge.target
