"""What templates of other apps may show of deployments."""

from collections.abc import Callable
from typing import Any

from django import template
from django.utils import timezone

from helixweb.access.scope import WHOLE_SITE
from helixweb.charts.chart import Chart
from helixweb.deployment import profiling, stages
from helixweb.deployment.instances import instances_view
from helixweb.deployment.models import LIVE, Deployment, Drain
from helixweb.deployment.node_log import log_view
from helixweb.deployment.services.deploying import goes_on, options_kept
from helixweb.deployment.services.desired import current_generation
from helixweb.deployment.services.obstacles import find_obstacles
from helixweb.deployment.stages import NodeStage
from helixweb.inventory.models import Node
from helixweb.inventory.stale_profiles import StaleProfile, stale_profiles
from helixweb.planning.models import Plan

register = template.Library()
# Of the deployments of a cluster the newest are shown; all of them are in the list.
NEWEST = 10

_TAGS: dict[str, Callable[..., Any]] = {
    "cluster_generation": current_generation,
    "kept_options": options_kept,
    "profiling_of": profiling.profiling_of,
    "models_to_measure": profiling.models_to_measure,
    "phases_of": stages.phases_of,
    "node_log": log_view,
}
for name, function in _TAGS.items():
    register.simple_tag(function, name=name)


@register.simple_tag
def deploy_obstacles(plan: Plan) -> tuple[str, ...]:
    """Why the plan cannot be deployed now, one sentence each."""
    return find_obstacles(plan, now=timezone.now())


@register.simple_tag
def live_deployment(plan: Plan) -> Deployment | None:
    """What the plan's cluster is busy with; deploying the plan would supersede it."""
    return Deployment.light(WHOLE_SITE).filter(cluster=plan.cluster_id, status__in=LIVE).first()


@register.simple_tag
def requests_go_on(live: Deployment | None, plan: Plan) -> bool:
    """True if requests under way go on where the plan takes the place of what is in service."""
    return live is not None and goes_on(live, plan)


@register.simple_tag
def revisions_of(deployment: Deployment) -> list[Deployment]:
    """What its cluster ran before and since, the newest first."""
    rows = Deployment.light(WHOLE_SITE).filter(cluster=deployment.cluster_id)
    return list(rows.select_related("created_by").order_by("-generation")[:NEWEST])


@register.simple_tag
def stages_of(nodes: Any) -> dict[int, NodeStage]:
    """{% stages_of nodes as stages %}, then {% stage_of stages node as stage %} for each."""
    return stages.stages_of(nodes, now=timezone.now())


@register.simple_tag
def stage_of(found: dict[int, NodeStage], node: Node) -> NodeStage | None:
    return found.get(node.pk)


@register.simple_tag
def node_stage(node: Node) -> NodeStage | None:
    """Of one node alone."""
    return stages.stages_of([node], now=timezone.now()).get(node.pk)


@register.simple_tag
def drain_of(node: Node) -> Drain | None:
    """How far its drain is; None: it is not to be drained."""
    return Drain.unscoped.filter(node=node).select_related("node").first()


@register.simple_tag
def measuring_of(cluster: Any) -> dict[str, Any]:
    """How far the measurements of its nodes are."""
    return profiling.measuring_of(cluster, now=timezone.now())


@register.simple_tag
def stale_profiles_of(node: Node) -> tuple[StaleProfile, ...]:
    """Those of the node that were measured under other conditions."""
    return stale_profiles([node]).get(node.pk, ())


@register.simple_tag
def stage_memory(node: Node, stage: NodeStage) -> Chart | None:
    return stages.memory_chart(node, stage.stats) if stage.stats else None


@register.simple_tag
def node_instances(node: Node, stage: NodeStage | None) -> dict[str, Any] | None:
    """What it runs instead of a stage in the deployment at work."""
    if stage is None:
        return None
    return instances_view(stage.deployment, now=timezone.now(), node_name=node.name)
