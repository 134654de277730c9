"""Which agents of a deployment serve weights, for a node that needs some."""

from datetime import datetime

from helixweb.deployment.models import SERVING
from helixweb.deployment.services.desired import newest_deployment
from helixweb.inventory.models import Node, lost_after
from runtime.protocol.control import PeerAddress
from runtime.protocol.reach import weights_endpoint
from runtime.protocol.weight_access import MOST_PEERS, WeightPeers


def weight_peers(node: Node, *, now: datetime) -> WeightPeers:
    """Those of the node's deployment that can be heard, the ones with layers of its own first."""
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
