"""Why a plan cannot be deployed yet."""

from collections.abc import Iterator
from datetime import datetime

from helixweb.inventory.models import Coordinator, Node, NodeState
from helixweb.planning.models import Plan


def find_obstacles(plan: Plan, *, now: datetime) -> tuple[str, ...]:
    """One sentence each, with its remedy; empty when the plan can be deployed."""
    return tuple(_obstacles(plan, now))


def _obstacles(plan: Plan, now: datetime) -> Iterator[str]:
    model, document = plan.model, plan.document
    if not model.checkpoint:
        yield (
            f"Model {model.name} has no checkpoint; set the path it has on the nodes "
            "on the model's page."
        )
    if model.num_layers != document["num_layers"]:
        yield (
            f"Model {model.name} has {model.num_layers} layers now, the plan places "
            f"{document['num_layers']}; compute a new plan."
        )
    nodes = {node.name: node for node in Node.objects.filter(cluster=plan.cluster_id)}
    for name in sorted(document["placement"]):
        node = nodes.get(name)
        if node is None:
            yield f"Node {name} is not in the cluster any more; compute a new plan without it."
        elif node.state_at(now) is NodeState.DECLARED:
            yield (
                f"Node {name} has not joined; run the join command from the cluster's page on it."
            )
        elif node.state_at(now) is NodeState.LOST:
            yield f"Node {name} is silent; start its agent again."
    coordinator = Coordinator.objects.filter(cluster=plan.cluster_id).first()
    if coordinator is None:
        yield "No coordinator has joined; run its join command from the cluster's page."
    elif coordinator.state_at(now) is not NodeState.ONLINE:
        yield f"Coordinator {coordinator.name} is silent; start it again."
