"""What single nodes do in the deployments at work: their layers, phase, memory, and how it came."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from helixweb.charts.chart import Chart
from helixweb.charts.memory_bars import memory_bars
from helixweb.deployment.coordinators import lost_stages
from helixweb.deployment.models import LIVE, Deployment, NodeAssignment, PhaseChange
from helixweb.deployment.presentation import NodeRow, assignment_row
from helixweb.inventory.models import Node
from helixweb.planning.stored import stored_plan
from runtime.protocol.control import StageStats

MAX_PHASES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStage:
    """A node's part in what its cluster serves; `stats` None: its stage has told nothing yet."""

    deployment: Deployment
    row: NodeRow
    stats: StageStats | None

    @property
    def is_slow(self) -> bool:
        """True if its engine says that a fast kernel is missing."""
        return self.stats is not None and "slow" in self.stats.engine


def stages_of(nodes: Iterable[Node], *, now: datetime) -> dict[int, NodeStage]:
    """By the node's id; nodes that hold no layers are left out."""
    assignments = list(
        NodeAssignment.objects.filter(
            node__in=[node.pk for node in nodes], deployment__status__in=LIVE
        )
        .select_related("deployment__plan", "node__drain")
        .defer(
            "desired", "deployment__serving_plan", "deployment__plan__problem",
            "deployment__plan__document",
        )
    )  # fmt: skip
    deployments = {row.deployment_id: row.deployment for row in assignments}
    lost = {
        pk: lost_stages(one.cluster_id, one.generation, now=now) for pk, one in deployments.items()
    }
    return {
        assignment.node_id: NodeStage(
            deployment=assignment.deployment,
            row=assignment_row(
                assignment,
                assignment.deployment,
                layers=stored_plan(assignment.deployment.plan).placement.layers[
                    assignment.node_name
                ],
                is_lost=assignment.node_name in lost[assignment.deployment_id],
                now=now,
            ),
            stats=StageStats.model_validate(assignment.stats) if assignment.stats else None,
        )
        for assignment in assignments
        if assignment.node_id is not None
    }


def memory_chart(node: Node, stats: StageStats) -> Chart:
    """What the stage's weights and pages take of what the node may use."""
    hardware = node.hardware or {}
    used = stats.kv_pages_used / stats.kv_pages_total if stats.kv_pages_total else 0.0
    cached = stats.kv_pages_cached / stats.kv_pages_total if stats.kv_pages_total else 0.0
    taken = stats.weights_bytes + stats.kv_bytes
    budget = max(float(hardware.get("memory_budget_bytes", taken)), float(taken))
    whole = max(float(hardware.get("memory_bytes", budget)), budget)
    for gpu in hardware.get("gpus", [])[:1]:
        whole = max(float(gpu["memory_bytes"]) * len(hardware["gpus"]), budget)
    parts = {
        "weights": float(stats.weights_bytes),
        "KV cache in use": stats.kv_bytes * used,
        "KV cache kept for prompts": stats.kv_bytes * cached,
        "KV cache free": stats.kv_bytes * max(0.0, 1 - used - cached),
        "left for computing": budget - taken,
        "not for the stage": whole - budget,
    }
    return memory_bars({node.name: parts})


def phases_of(node: Node) -> list[PhaseChange]:
    """The last phases it entered, in any deployment; the newest first."""
    changes = PhaseChange.objects.filter(assignment__node=node).select_related(
        "assignment__deployment"
    )
    return list(
        changes.defer("assignment__deployment__serving_plan").order_by("-at", "-pk")[:MAX_PHASES]
    )
