"""What `status` and `top` show of a cluster, read at once."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from helixweb.client import Client, NotFound
from helixweb.client.generated import schemas
from helixweb.command_line.resolve import in_service

MOST_ALERTS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """None: the site has nothing to tell of it."""

    cluster: schemas.Cluster
    nodes: list[schemas.Node]
    coordinators: list[schemas.Coordinator]
    deployment: schemas.Deployment | None
    failed: schemas.Deployment | None
    alerts: list[schemas.Alert]
    sample: schemas.Sample | None
    finding: schemas.Finding | None
    links: list[schemas.LinkAtWork]
    reach: schemas.Reachability | None

    @property
    def states(self) -> Counter[str]:
        """How many nodes are online, lost, declared."""
        return Counter(node["state"] for node in self.nodes)

    def as_json(self) -> dict[str, Any]:
        return {
            "cluster": self.cluster,
            "nodes": self.nodes,
            "coordinators": self.coordinators,
            "deployment": self.deployment,
            "failed_deployment": self.failed,
            "alerts": self.alerts,
            "metrics": self.sample,
            "bottleneck": self.finding,
            "links": self.links,
            "reach": self.reach,
        }


def read_cluster(client: Client, cluster: schemas.Cluster) -> Reading:
    """Raises ClientError."""
    number = cluster["id"]
    deployment = in_service(client, number)
    return Reading(
        cluster=cluster,
        nodes=list(client.nodes.all(cluster=number)),
        coordinators=list(client.coordinators.all(cluster=number)),
        deployment=deployment,
        failed=_failed(client, number),
        alerts=list(client.alerts.all(cluster=number, state="firing", limit=MOST_ALERTS)),
        sample=_sample(client, number),
        finding=_finding(client, number),
        links=[] if deployment is None else client.deployments.links(deployment["id"])["links"],
        reach=_reach(client, number),
    )


def _failed(client: Client, cluster: int) -> schemas.Deployment | None:
    """The newest deployment, if it failed."""
    newest = next(client.deployments.all(cluster=cluster, ordering=["-id"], limit=1), None)
    return newest if newest is not None and newest["status"] == "failed" else None


def _sample(client: Client, cluster: int) -> schemas.Sample | None:
    try:
        return client.metrics.latest(cluster=cluster)
    except NotFound:
        return None


def _reach(client: Client, cluster: int) -> schemas.Reachability | None:
    """None from a site of an earlier release."""
    try:
        return client.clusters.reach(cluster)
    except NotFound:
        return None


def _finding(client: Client, cluster: int) -> schemas.Finding | None:
    try:
        return client.clusters.bottleneck(cluster)
    except NotFound:
        return None
