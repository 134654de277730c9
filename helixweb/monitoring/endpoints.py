"""Deployments that the playground can talk to. Reads only."""

from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _

from helixweb.deployment.coordinators import is_online
from helixweb.deployment.models import SERVING, Deployment
from helixweb.deployment.services.desired import service_key
from helixweb.inventory.models import Coordinator


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A deployment, and the coordinator where it is reached."""

    deployment: Deployment
    coordinator: Coordinator

    def __str__(self) -> str:
        said = (
            _("%(model)s on %(cluster)s (emulated)")
            if self.deployment.emulated
            else _("%(model)s on %(cluster)s")
        )
        return said % {"model": self.deployment.model_name, "cluster": self.deployment.cluster}

    @property
    def base_url(self) -> str:
        return f"{self.coordinator.http_url.rstrip('/')}/v1"

    @property
    def key(self) -> str:
        """What opens it to this site."""
        return service_key(self.coordinator)


def deployments(scope: Any) -> QuerySet[Deployment]:
    rows = Deployment.objects.within(scope).select_related("cluster", "model")
    return rows.defer("serving_plan")


def endpoints_of(rows: QuerySet[Deployment]) -> list[Endpoint]:
    """Those in service whose coordinator has said where it is reached, newest first; by one that
    can be heard, if there is any."""
    now = timezone.now()
    known = Coordinator.unscoped.exclude(http_url="")
    by_cluster = {
        row.cluster_id: row for row in sorted(known, key=lambda row: is_online(row, now=now))
    }
    return [
        Endpoint(deployment=deployment, coordinator=by_cluster[deployment.cluster_id])
        for deployment in rows.filter(status__in=SERVING).order_by("-pk")
        if deployment.cluster_id in by_cluster
    ]
