"""Prometheus metrics of nodes and coordinators: their states and when they were last seen."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from prometheus_client import Metric

from helixweb.inventory.models import Cluster, Coordinator, Node, NodeState
from helixweb.inventory.node_list import state_counts_by_cluster
from runtime.protocol.exposition import gauge


def collect(now: datetime, scope: Any) -> Iterator[Metric]:
    """Ages and states of processes that have joined; how many nodes there are in each state."""
    nodes = list(
        Node.objects.within(scope).select_related("cluster").defer("hardware").order_by("pk")
    )
    known = state_counts_by_cluster(now=now)
    none = dict.fromkeys(NodeState.values, 0)
    counts = [
        ({"cluster": name, "state": state}, count)
        for pk, name in Cluster.objects.within(scope).values_list("pk", "name")
        for state, count in known.get(pk, none).items()
    ]
    yield gauge("helix_nodes", "Nodes of a cluster by what is known of the machine", counts)
    coordinators = list(Coordinator.objects.within(scope).select_related("cluster").order_by("pk"))
    yield from _signs_of_life("node", "node", nodes, now)
    yield from _signs_of_life("front", "coordinator", coordinators, now)


def _signs_of_life(
    name: str, label: str, rows: Sequence[Node] | Sequence[Coordinator], now: datetime
) -> Iterator[Metric]:
    joined = [
        ({"cluster": row.cluster.name, label: row.name}, row, row.last_seen_at)
        for row in rows
        if row.joined_at is not None and row.last_seen_at is not None
    ]
    yield gauge(
        f"helix_{name}_up",
        f"1 while the {label} is heard of",
        [(labels, float(row.state_at(now) is NodeState.ONLINE)) for labels, row, _ in joined],
    )
    yield gauge(
        f"helix_{name}_heartbeat_age_seconds",
        f"Since the {label} was heard of",
        [(labels, max(0.0, (now - seen_at).total_seconds())) for labels, _, seen_at in joined],
    )
