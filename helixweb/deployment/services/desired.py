"""Desired state of every process, from the current rows."""

from datetime import datetime
from typing import Any

from django.db.models import Max
from django.utils import timezone

from helixweb.common.auth import sha256_hex
from helixweb.common.peppers import peppers
from helixweb.deployment.links import weights_of
from helixweb.deployment.models import SERVING, Deployment
from helixweb.deployment.services.draining import draining_names, is_let_go
from helixweb.deployment.services.instance_orders import assigned, derived_key, served
from helixweb.deployment.services.key_limits import admitted_keys
from helixweb.deployment.services.orders import weights_among, with_peers
from helixweb.inventory.models import Coordinator, Node, lost_after
from helixweb.inventory.services.checkpoint_reading import standing_looks
from runtime.protocol.control import (
    CoordinatorDesired,
    DesiredState,
    PeerAddress,
    ServingPlan,
    StageAssignment,
)
from runtime.protocol.reach import weights_endpoint
from runtime.protocol.weight_access import MOST_PEERS, WeightPeers


def current_generation(cluster_id: int) -> int:
    """The generation the cluster's processes must be at; 0 before the first deployment."""
    newest = Deployment.unscoped.filter(cluster=cluster_id).aggregate(Max("generation"))
    return newest["generation__max"] or 0


def desired_state(node: Node, *, takes_looks: bool = False) -> DesiredState:
    """What the node must run, and the checkpoints to inspect if its agent supports this."""
    to_run = _to_run(node)
    if not takes_looks:
        return to_run
    return to_run.model_copy(update={"looks": standing_looks(node, now=timezone.now())})


def _to_run(node: Node) -> DesiredState:
    """The node's assignment in the cluster's deployment; empty if it has none or is drained.

    If a deployment replaces another one, the node's previous work continues until the coordinator
    retires it; on a node without an assignment only until the change ends, because a restarted
    coordinator does not know of the previous work.
    """
    deployment = newest_deployment(node.cluster_id)
    if deployment is None:
        return DesiredState(generation=0)
    if deployment.status not in SERVING or is_let_go(node):
        return DesiredState(generation=deployment.generation)
    row = deployment.assignments.filter(node=node).first()
    if row is None:
        return DesiredState(generation=deployment.generation, continues=deployment.is_changing)
    if row.instances:
        return DesiredState(
            generation=deployment.generation, instances=assigned(row.instances, node)
        )
    assignment = with_peers(
        StageAssignment.model_validate(row.desired),
        name=row.node_name,
        node_peers=ServingPlan.model_validate(deployment.serving_plan).peers,
        coordinator_peers=map(PeerAddress.model_validate, deployment.coordinator_peers),
    )
    return DesiredState(
        generation=deployment.generation,
        assignment=assignment,
        continues=deployment.follows_generation is not None,
    )


def coordinator_desired(coordinator: Coordinator) -> CoordinatorDesired:
    """The plan to serve, and every key that opens the endpoint."""
    deployment = newest_deployment(coordinator.cluster_id)
    plan = None
    if deployment is not None and deployment.status in SERVING:
        plan = ServingPlan.model_validate(deployment.serving_plan)
        weights = weights_of(deployment)
        if weights is not None and weights.counts:
            among = weights_among(plan.placement.layers, weights.routing_weights)
            plan = plan.model_copy(update={"routing_weights": among})
        if plan.instances_total:
            plan = plan.model_copy(update=_instances_of(deployment, plan))
    return CoordinatorDesired(
        generation=deployment.generation if deployment else 0,
        plan=plan,
        api_key_hashes=(sha256_hex(service_key(coordinator)),),
        keys=admitted_keys(coordinator.cluster_id, now=timezone.now()),
        peppers=tuple(pepper.secret for pepper in peppers()),
        draining=draining_names(coordinator.cluster_id),
        paused=deployment is not None and deployment.paused_at is not None,
    )


def _instances_of(deployment: Deployment, plan: ServingPlan) -> dict[str, Any]:
    """Instances with a known address, and the expected total. Drained nodes do not count, since a
    replacing plan would wait for them."""
    rows = list(
        deployment.assignments.exclude(instances=[])
        .exclude(node__drain__let_go_at__isnull=False)
        .select_related("node")
        .order_by("node_name")
    )
    return {
        "instances": tuple(one for row in rows for one in served(row)),
        "instances_total": sum(len(row.instances) for row in rows) or plan.instances_total,
    }


def service_key(coordinator: Coordinator) -> str:
    """The playground's API key for this coordinator."""
    return derived_key("hlx_", f"playground:{coordinator.uuid}")


def newest_deployment(cluster_id: int) -> Deployment | None:
    """The one that the processes of the cluster follow, ended or not."""
    rows = Deployment.unscoped.filter(cluster=cluster_id).defer(None)
    return rows.order_by("-generation").first()


def weight_peers(node: Node, *, now: datetime) -> WeightPeers:
    """Online nodes of the same deployment, those that share layers with it first."""
    deployment = newest_deployment(node.cluster_id)
    if deployment is None or deployment.status not in SERVING:
        return WeightPeers()
    own = deployment.assignments.filter(node=node).first()
    if own is None:
        return WeightPeers()
    others = (
        deployment.assignments.exclude(node=node)
        .filter(node__last_seen_at__gte=now - lost_after(), weights__port__gt=0)
        .select_related("node")
        .defer("desired", "stats")
        .order_by("pk")
    )
    shared = {"desired__first__lt": own.desired["end"], "desired__end__gt": own.desired["first"]}
    rows = [*others.filter(**shared)[:MOST_PEERS], *others.exclude(**shared)[:MOST_PEERS]]
    return WeightPeers(
        peers=tuple(
            PeerAddress(
                name=row.node_name,
                endpoint=weights_endpoint(row.node.data_endpoint, row.weights["port"]),
                public_key=row.node.data_public_key,
            )
            for row in rows[:MOST_PEERS]
            if row.node is not None
        )
    )
