"""Put a plan to work, take it back, and follow processes that moved."""

from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Max
from rest_framework.exceptions import APIException

from helixweb.deployment.models import LIVE, SERVING, Deployment, NodeAssignment, Status
from helixweb.deployment.options import DeployOptions
from helixweb.deployment.services.announcing import announce
from helixweb.deployment.services.obstacles import find_obstacles
from helixweb.deployment.services.orders import make_orders
from helixweb.deployment.services.pushing import wake
from helixweb.inventory.models import Cluster, Coordinator, Node
from helixweb.planning.models import Plan
from runtime.protocol.control import Phase


class DeployRefused(APIException):
    """The cluster is in a state that forbids it; each reason has its remedy."""

    status_code = 409
    default_code = "deploy_refused"

    def __init__(self, *reasons: str) -> None:
        super().__init__(detail=list(reasons))
        self.reasons = reasons


def deploy(plan: Plan, *, user: Any, options: DeployOptions, now: datetime) -> Deployment:
    """Make `plan` what its cluster shall run; whatever ran there before is superseded.

    Raises DeployRefused with every obstacle, or when somebody else changed the cluster meanwhile.
    """
    obstacles = find_obstacles(plan, now=now)
    if obstacles:
        raise DeployRefused(*obstacles)
    try:
        with transaction.atomic():
            _supersede(plan.cluster, now=now)
            deployment = Deployment.objects.create(
                cluster=plan.cluster,
                plan=plan,
                model=plan.model,
                generation=_next_generation(plan.cluster_id),
                page_tokens=options.page_tokens,
                max_batch_tokens=options.max_batch_tokens,
                kv_high_water=options.kv_high_water,
                max_queued_requests=options.max_queued_requests,
                max_context_tokens=options.max_context_tokens or plan.model.max_context_tokens,
                serving_plan={},
                created_by=user,
                created_at=now,
                changed_at=now,
            )
            _write_orders(deployment, now=now)
            announce(deployment, text=f"Deploying {plan.model.name} (plan {plan.pk}).")
            wake(deployment.pk)
    except IntegrityError as error:  # the constraints of Deployment: another one was faster
        raise DeployRefused(
            f"Another deployment to cluster {plan.cluster.name} was started at the same moment; "
            "look at it, then deploy again if you still want to."
        ) from error
    return deployment


def stop(deployment: Deployment, *, user: Any, now: datetime) -> Deployment:
    """Have every node let go of its layers. Raises DeployRefused unless it is in service."""
    with transaction.atomic():
        current = Deployment.objects.get(pk=deployment.pk)
        changed = Deployment.objects.filter(
            pk=current.pk, generation=current.generation, status__in=SERVING
        ).update(
            status=Status.STOPPING,
            message="",
            generation=_next_generation(current.cluster_id),
            changed_at=now,
            pushed_at=None,
        )
        if not changed:
            raise DeployRefused(
                f"Deployment {current.pk} is {current.status}; only one that is deploying, ready "
                "or failed can be stopped."
            )
        current.refresh_from_db()
        announce(current, text=f"{user} stops {current.model.name}.")
        wake(current.pk)
    return current


def follow_addresses(cluster: Cluster, *, now: datetime) -> None:
    """Start a new generation if a process of the cluster's deployment listens elsewhere now.

    Stages get their peers once, when they start, so all of them start again. A node that was
    removed is left to `settle`.
    """
    with transaction.atomic():
        deployment = (
            Deployment.objects.select_for_update()
            .filter(cluster=cluster, status__in=SERVING)
            .first()
        )
        nodes, coordinator = _processes(cluster)
        if deployment is None or coordinator is None:
            return
        if not set(deployment.plan.document["placement"]) <= set(nodes):
            return
        orders = make_orders(deployment, nodes=nodes, coordinator=coordinator)
        if deployment.serving_plan == orders.serving_plan.model_dump(mode="json") and all(
            row.desired == orders.assignments[row.node_name].model_dump(mode="json")
            for row in deployment.assignments.all()
        ):
            return
        deployment.generation = _next_generation(cluster.pk)
        deployment.status = Status.DEPLOYING
        deployment.message = ""
        deployment.changed_at = now
        deployment.pushed_at = None
        deployment.save()
        _write_orders(deployment, now=now)
        announce(
            deployment,
            text=f"{deployment.model.name} starts again: a process listens at a new address.",
        )
        wake(deployment.pk)


def _supersede(cluster: Cluster, *, now: datetime) -> None:
    """End the live deployment, if any, by compare-and-set."""
    live = Deployment.objects.filter(cluster=cluster, status__in=LIVE).first()
    if live is None:
        return
    unchanged = Deployment.objects.filter(pk=live.pk, generation=live.generation, status__in=LIVE)
    if not unchanged.update(status=Status.SUPERSEDED, ended_at=now):
        raise DeployRefused(
            f"Deployment {live.pk} changed just now; look at it, then deploy again."
        )
    live.status = Status.SUPERSEDED
    announce(live, text=f"Deployment {live.pk} of {live.model.name} is superseded.")


def _next_generation(cluster_id: int) -> int:
    newest = Deployment.objects.filter(cluster=cluster_id).aggregate(newest=Max("generation"))
    return (newest["newest"] or 0) + 1


def _processes(cluster: Cluster) -> tuple[dict[str, Node], Coordinator | None]:
    nodes = {node.name: node for node in Node.objects.filter(cluster=cluster)}
    return nodes, Coordinator.objects.filter(cluster=cluster).first()


def _write_orders(deployment: Deployment, *, now: datetime) -> None:
    """Store what the deployment's generation tells everybody; nothing is observed of it yet."""
    nodes, coordinator = _processes(deployment.cluster)
    if coordinator is None:
        raise DeployRefused("The coordinator was removed just now; let one join, then deploy.")
    orders = make_orders(deployment, nodes=nodes, coordinator=coordinator)
    deployment.serving_plan = orders.serving_plan.model_dump(mode="json")
    deployment.save(update_fields=["serving_plan"])
    for name, assignment in orders.assignments.items():
        NodeAssignment.objects.update_or_create(
            deployment=deployment,
            node_name=name,
            defaults={
                "node": nodes[name],
                "desired": assignment.model_dump(mode="json"),
                "phase": Phase.IDLE.value,
                "message": "",
                "loaded_ratio": None,
                "stats": None,
                "updated_at": now,
            },
        )
