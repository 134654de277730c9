"""How far the measurements of a cluster's nodes are, and how long they take. Reads only."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from helixweb.deployment.models import Profiling
from helixweb.deployment.profiling import (
    lacking_measurement,
    models_to_measure,
    standing_in,
    waits_for,
)
from helixweb.inventory.models import Cluster, LanguageModel, Node, NodeState


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuringRow:
    """One order; `after` is the name of the node that it waits for, `left_s` None: not known."""

    order: Profiling
    after: str
    left_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuringView:
    """`unmeasured` has the nodes that a click on *Measure all nodes* orders, by model."""

    rows: tuple[MeasuringRow, ...]
    left_s: float | None
    failed: tuple[Profiling, ...]
    unmeasured: tuple[tuple[LanguageModel, int], ...]
    can_measure: bool


def measuring_view(cluster: Cluster, *, now: datetime) -> MeasuringView:
    """Of the orders that stand, and of the newest of each node that failed."""
    nodes = [
        node
        for node in Node.objects.filter(cluster=cluster, joined_at__isnull=False)
        if node.state_at(now) is NodeState.ONLINE and not node.is_emulated
    ]
    models = models_to_measure()
    rows = measuring_rows(standing_in(cluster.pk), now=now)
    newest: dict[int, Profiling] = {}
    for order in Profiling.objects.filter(node__cluster=cluster).select_related("node", "model"):
        newest.setdefault(order.node_id, order)
    lefts = [row.left_s for row in rows]
    return MeasuringView(
        rows=rows,
        left_s=max((left for left in lefts if left is not None), default=None),
        failed=tuple(one for one in newest.values() if one.state == Profiling.State.FAILED),
        unmeasured=tuple((model, len(lacking_measurement(nodes, model))) for model in models),
        can_measure=bool(nodes and models),
    )


def measuring_rows(standing: Sequence[Profiling], *, now: datetime) -> tuple[MeasuringRow, ...]:
    """In the order in which they were ordered; one that waits is taken to last as long as what it
    waits for."""
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
        found.append(MeasuringRow(order=order, after=after, left_s=left_s))
    return tuple(found)
