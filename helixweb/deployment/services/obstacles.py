"""Why a plan cannot be deployed yet."""

from collections.abc import Iterator
from datetime import datetime

from helixweb.deployment.options import DEFAULTS, DeployOptions
from helixweb.deployment.tensor_parallel import obstacles_to_ranks
from helixweb.inventory.models import Coordinator, Node, NodeState
from helixweb.planning.models import Plan
from helixweb.planning.stored import stored_plan


def find_obstacles(
    plan: Plan, *, now: datetime, options: DeployOptions = DEFAULTS
) -> tuple[str, ...]:
    """One sentence each, with its remedy; empty when the plan can be deployed."""
    return tuple(_obstacles(plan, now, options))


def _obstacles(plan: Plan, now: datetime, options: DeployOptions) -> Iterator[str]:
    model, stored = plan.model, stored_plan(plan)
    if plan.run is not None and plan.run.what_if:
        yield (
            f"This plan is for a changed copy of the cluster ({plan.run.what_if}); make the "
            "changes, then compute a plan of the cluster itself."
        )
    if (options.max_context_tokens or 0) > model.max_context_tokens:
        yield (
            f"Requests of {options.max_context_tokens} tokens are longer than the "
            f"{model.max_context_tokens} that model {model.name} allows; choose fewer, or change "
            "the number on the model's page if its checkpoint can do more."
        )
    if not model.checkpoint:
        yield (
            f"Model {model.name} has no checkpoint; set the path it has on the nodes "
            "on the model's page."
        )
    if model.num_layers != stored.num_layers:
        yield (
            f"Model {model.name} has {model.num_layers} layers now, the plan places "
            f"{stored.num_layers}; compute a new plan."
        )
    nodes = {node.name: node for node in Node.objects.filter(cluster=plan.cluster_id)}
    for name in sorted(stored.placement.layers):
        node = nodes.get(name)
        if node is None:
            yield f"Node {name} is not in the cluster any more; compute a new plan without it."
        elif node.state_at(now) is NodeState.DECLARED:
            yield (
                f"Node {name} has not joined; run the join command from the cluster's page on it."
            )
        elif node.state_at(now) is NodeState.LOST:
            yield f"Node {name} is silent; start its agent again."
    placed = {name: nodes.get(name) for name in stored.placement.layers}
    yield from obstacles_to_ranks(options, model=model, nodes=placed)
    coordinator = Coordinator.objects.filter(cluster=plan.cluster_id).first()
    if coordinator is None:
        yield "No coordinator has joined; run its join command from the cluster's page."
    elif coordinator.state_at(now) is not NodeState.ONLINE:
        yield f"Coordinator {coordinator.name} is silent; start it again."
