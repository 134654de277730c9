"""Takes the measured rates of links into the inventory."""

from datetime import datetime

from django.db import transaction

from helixweb.deployment.link_view import LinkRow, links_at_work
from helixweb.inventory.models import Cluster, Link, Origin
from helixweb.inventory.presentation import cluster_network
from helixweb.inventory.services import records


def keep_measured(cluster: Cluster, *, now: datetime) -> int:
    """Write what slow links were measured to carry; returns how many there were.

    What they were before stays in the history of changes.
    """
    found = links_at_work(cluster_id=cluster.pk, now=now)
    slow = [row for row in found.rows if row.slow] if found else []
    with transaction.atomic():
        for row in slow:
            _keep(cluster, row)
    return len(slow)


def _keep(cluster: Cluster, row: LinkRow) -> None:
    known = cluster_network(cluster).link(row.source, row.target)
    measured = {
        "bandwidth_bytes_per_s": row.stats.bandwidth_bytes_per_s,
        "origin": Origin.MEASURED,
    }
    own = Link.objects.filter(cluster=cluster, source=row.source, target=row.target).first()
    if own is not None:
        records.update(own, **measured)
    elif known is not None:
        records.create(
            Link,
            cluster=cluster,
            source=row.source,
            target=row.target,
            latency_s=known.latency_s,
            **measured,
        )
