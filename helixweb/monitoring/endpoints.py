"""Deployments that the playground can talk to. Reads only."""

from dataclasses import dataclass

from django.db.models import QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _

from helixweb.common.connections import returns_connection
from helixweb.deployment.coordinators import is_online
from helixweb.deployment.models import SERVING, Deployment
from helixweb.deployment.services.desired import service_key
from helixweb.inventory.models import Coordinator


class NoEndpoint(Exception):
    """The deployment answers no chats; the text says why and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a deployment is reached, and the key that opens it to this site."""

    deployment_id: int
    model_name: str
    cluster_name: str
    max_context_tokens: int
    emulated: bool
    base_url: str
    key: str

    def __str__(self) -> str:
        said = (
            _("%(model)s on %(cluster)s (emulated)")
            if self.emulated
            else _("%(model)s on %(cluster)s")
        )
        return said % {"model": self.model_name, "cluster": self.cluster_name}


def all_endpoints() -> list[Endpoint]:
    """Of every deployment in service whose coordinator is known, newest first."""
    deployments = _deployments().filter(status__in=SERVING).order_by("-pk")
    coordinators = _reached(Coordinator.objects.all())
    return [
        _endpoint(deployment, coordinators[deployment.cluster_id])
        for deployment in deployments
        if deployment.cluster_id in coordinators
    ]


@returns_connection  # an answer is streamed for minutes
def endpoint_of(deployment_id: int) -> Endpoint | None:
    """None: there is no such deployment. Raises NoEndpoint."""
    deployment = _deployments().filter(pk=deployment_id).first()
    if deployment is None:
        return None
    if deployment.status not in SERVING:
        raise NoEndpoint(
            _(
                "Deployment %(deployment_id)s is %(status)s; choose one in service, or "
                "deploy a plan."
            )
            % {"deployment_id": deployment_id, "status": deployment.status}
        )
    coordinators = Coordinator.objects.filter(cluster=deployment.cluster_id)
    coordinator = _reached(coordinators).get(deployment.cluster_id)
    if coordinator is None:
        raise NoEndpoint(
            _(
                "The coordinator of cluster %(cluster)s has not said where it is "
                "reached; let it join from the cluster's page, or start it with --host "
                "and --port."
            )
            % {"cluster": deployment.cluster}
        )
    return _endpoint(deployment, coordinator)


def _deployments() -> QuerySet[Deployment]:
    return Deployment.objects.select_related("cluster", "model").defer("serving_plan")


def _reached(coordinators: QuerySet[Coordinator]) -> dict[int, Coordinator]:
    """By cluster one that has said where it is reached; one that can be heard, if there is any."""
    now = timezone.now()
    rows = sorted(coordinators.exclude(http_url=""), key=lambda row: is_online(row, now=now))
    return {row.cluster_id: row for row in rows}


def _endpoint(deployment: Deployment, coordinator: Coordinator) -> Endpoint:
    return Endpoint(
        deployment_id=deployment.pk,
        model_name=deployment.model_name,
        cluster_name=deployment.cluster.name,
        max_context_tokens=deployment.max_context_tokens,
        emulated=deployment.emulated,
        base_url=f"{coordinator.http_url.rstrip('/')}/v1",
        key=service_key(coordinator),
    )
