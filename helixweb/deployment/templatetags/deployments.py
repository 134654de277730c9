"""Template tags of deployments for other apps."""

from collections.abc import Callable
from typing import Any

from django import template
from django.utils import timezone

from helixweb.access.scope import WHOLE_SITE
from helixweb.charts.chart import Chart
from helixweb.deployment import profiling, stages
from helixweb.deployment.models import Deployment, Drain
from helixweb.deployment.node_log import log_view
from helixweb.deployment.services.deploying import goes_on, options_kept
from helixweb.deployment.services.desired import current_generation
from helixweb.deployment.services.obstacles import find_obstacles
from helixweb.deployment.stages import NodeStage, instances_view
from helixweb.inventory.models import Node
from helixweb.inventory.stale_profiles import stale_profiles

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
    "requests_go_on": lambda live, plan: live is not None and goes_on(live, plan),
    "live_deployment": lambda plan: Deployment.live(plan.cluster_id),
    "drain_of": lambda node: Drain.unscoped.filter(node=node).select_related("node").first(),
    "stale_profiles_of": lambda node: stale_profiles([node]).get(node.pk, ()),
    # {% stages_of nodes as stages %}, then {% stage_of stages node as stage %} for each.
    "stage_of": lambda found, node: found.get(node.pk),
}
_OF_NOW: dict[str, Callable[..., Any]] = {
    "deploy_obstacles": find_obstacles,
    "measuring_of": profiling.measuring_of,
    "stages_of": stages.stages_of,
    "node_stage": lambda node, now: stages.stages_of([node], now=now).get(node.pk),
}
for name, function in _OF_NOW.items():
    _TAGS[name] = lambda *of, function=function: function(*of, now=timezone.now())
for name, function in _TAGS.items():
    register.simple_tag(function, name=name)


@register.simple_tag
def revisions_of(deployment: Deployment) -> list[Deployment]:
    """All deployments of its cluster, newest first."""
    rows = Deployment.light(WHOLE_SITE).filter(cluster=deployment.cluster_id)
    return list(rows.select_related("created_by").order_by("-generation")[:NEWEST])


@register.simple_tag
def stage_memory(node: Node, stage: NodeStage) -> Chart | None:
    return stages.memory_chart(node, stage.stats) if stage.stats else None


@register.simple_tag
def node_instances(node: Node, stage: NodeStage | None) -> dict[str, Any] | None:
    """Context of the instances that a node runs instead of a stage; None without."""
    if stage is None:
        return None
    return instances_view(stage.deployment, now=timezone.now(), node_name=node.name)
