"""What the pages of nodes show of deployments: {% load node_stages %}."""

from collections.abc import Iterable, Mapping

from django import template
from django.http import QueryDict
from django.utils import timezone

from helixweb.charts.chart import Chart
from helixweb.deployment import node_stages, profiling
from helixweb.deployment.instance_view import InstancesView, instances_view
from helixweb.deployment.measuring_view import MeasuringView, measuring_view
from helixweb.deployment.models import Drain, PhaseChange, Profiling
from helixweb.deployment.node_log import LogView, log_view
from helixweb.deployment.node_stages import NodeStage
from helixweb.inventory.models import Cluster, LanguageModel, Node
from helixweb.inventory.stale_profiles import StaleProfile, stale_profiles

register = template.Library()


@register.simple_tag
def stages_of(nodes: Iterable[Node]) -> dict[int, NodeStage]:
    """{% stages_of nodes as stages %}, then {% stage_of stages node as stage %} for each."""
    return node_stages.stages_of(nodes, now=timezone.now())


@register.simple_tag
def stage_of(stages: Mapping[int, NodeStage], node: Node) -> NodeStage | None:
    return stages.get(node.pk)


@register.simple_tag
def node_stage(node: Node) -> NodeStage | None:
    """Of one node alone."""
    return node_stages.stages_of([node], now=timezone.now()).get(node.pk)


@register.simple_tag
def drain_of(node: Node) -> Drain | None:
    """How far its drain is; None: it is not to be drained."""
    return Drain.objects.filter(node=node).select_related("node").first()


@register.simple_tag
def profiling_of(node: Node) -> Profiling | None:
    """The newest order to measure it."""
    return profiling.profiling_of(node)


@register.simple_tag
def measuring_of(cluster: Cluster) -> MeasuringView:
    """How far the measurements of its nodes are."""
    return measuring_view(cluster, now=timezone.now())


@register.simple_tag
def stale_profiles_of(node: Node) -> tuple[StaleProfile, ...]:
    """Those of the node that were measured under other conditions."""
    return stale_profiles([node]).get(node.pk, ())


@register.simple_tag
def models_to_measure() -> list[LanguageModel]:
    """Those it can be measured for."""
    return profiling.models_to_measure()


@register.simple_tag
def stage_memory(node: Node, stage: NodeStage) -> Chart | None:
    return node_stages.memory_chart(node, stage.stats) if stage.stats else None


@register.simple_tag
def node_instances(node: Node, stage: NodeStage | None) -> InstancesView | None:
    """What it runs instead of a stage in the deployment at work."""
    if stage is None:
        return None
    return instances_view(stage.deployment, now=timezone.now(), node_name=node.name)


@register.simple_tag
def phases_of(node: Node) -> list[PhaseChange]:
    return node_stages.phases_of(node)


@register.simple_tag
def node_log(node: Node, asked: QueryDict) -> LogView:
    """With what the address asks for: `?level=` and `?lines=`."""
    return log_view(node, asked)
