"""The state of a cluster, as `status` and `top` show it."""

from collections import Counter
from dataclasses import dataclass

from helixweb.client import Client, NotFound, Row, Rows
from helixweb.command_line.resolve import in_service

MOST_ALERTS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Rows of one cluster; None where the site has no data."""

    cluster: Row
    nodes: list[Row]
    coordinators: list[Row]
    deployment: Row | None
    failed_deployment: Row | None
    alerts: list[Row]
    metrics: Row | None
    bottleneck: Row | None
    links: list[Row]
    reach: Row | None

    @property
    def states(self) -> Counter[str]:
        """How many nodes are online, lost, declared."""
        return Counter(node["state"] for node in self.nodes)


def read_cluster(client: Client, cluster: Row) -> Reading:
    """Raises ClientError."""
    number = cluster["id"]
    deployment = in_service(client, number)
    return Reading(
        cluster=cluster,
        nodes=list(client.nodes.all(cluster=number)),
        coordinators=list(client.coordinators.all(cluster=number)),
        deployment=deployment,
        failed_deployment=_failed(client, number),
        alerts=list(client.alerts.all(cluster=number, state="firing", limit=MOST_ALERTS)),
        metrics=_if_any(client.metrics, "latest", cluster=number),
        bottleneck=_if_any(client.clusters, "bottleneck", number),
        links=client.deployments.read("links", deployment["id"])["links"] if deployment else [],
        reach=_if_any(client.clusters, "reach", number),  # earlier releases lack it
    )


def _failed(client: Client, cluster: int) -> Row | None:
    """The newest deployment, if it failed."""
    newest = next(client.deployments.all(cluster=cluster, ordering=["-id"], limit=1), None)
    return newest if newest is not None and newest["status"] == "failed" else None


def _if_any(rows: Rows, action: str, key: int | None = None, **query: int) -> Row | None:
    """The answer, or None if the server has none (404)."""
    try:
        row: Row = rows.read(action, key, **query)
    except NotFound:
        return None
    return row
