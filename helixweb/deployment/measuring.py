"""How far the measurements of a cluster's nodes are, and how long they take. Reads only."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from helixweb.deployment.models import Profiling
from helixweb.deployment.profiling import (
    lacking_measurement,
    measurable,
    models_to_measure,
    standing_in,
    waits_for,
)
from helixweb.inventory.models import Cluster


def measuring_of(cluster: Cluster, *, now: datetime) -> dict[str, Any]:
    """Of the orders that stand, and of the newest of each node that `failed`.

    `unmeasured` has by model how many nodes a click on *Measure all nodes* orders.
    """
    nodes, models = measurable(cluster, now=now), models_to_measure()
    rows = _rows(standing_in(cluster.pk), now=now)
    newest: dict[int, Profiling] = {}
    for order in Profiling.objects.filter(node__cluster=cluster).select_related("node", "model"):
        newest.setdefault(order.node_id, order)
    return {
        "rows": rows,
        "left_s": max((row["left_s"] for row in rows if row["left_s"] is not None), default=None),
        "failed": [one for one in newest.values() if one.state == Profiling.State.FAILED],
        "unmeasured": [(model, len(lacking_measurement(nodes, model))) for model in models],
        "can_measure": bool(nodes and models),
    }


def _rows(standing: Sequence[Profiling], *, now: datetime) -> list[dict[str, Any]]:
    """In the order in which they were ordered; `after` is the name of the node that one waits for.

    One that waits is taken to last as long as what it waits for. `left_s` None: not known.
    """
    found = []
    queued: Counter[str] = Counter()
    for order in standing:
        before, left_s = waits_for(order, standing, now=now), order.left_s_at(now)
        if before is not None:
            queued[order.node.host] += 1
            first_s, whole_s = before.left_s_at(now), before.whole_s_at(now)
            if first_s is not None and whole_s is not None:
                left_s = first_s + queued[order.node.host] * whole_s
        after = "" if before is None else before.node.name
        found.append({"order": order, "after": after, "left_s": left_s})
    return found
