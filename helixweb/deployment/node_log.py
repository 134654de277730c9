"""The last lines of nodes' logs: kept within bounds, announced, and read back for pages.

Lines are in the order in which they came: a node's clock may be wrong.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import transaction
from django.http import QueryDict

from helixweb.common import events
from helixweb.deployment.log_models import LOG_LEVELS, NodeLogLine
from helixweb.inventory.models import Node
from runtime.protocol.log_levels import LogLevel
from runtime.protocol.node_log import LogBatch

KEPT_LINES = 1000
KEPT = timedelta(days=7)
LINE_COUNTS = (50, 200, KEPT_LINES)


def record_log(node: Node, batch: LogBatch) -> None:
    """Store the agent's log lines; only the node's last `KEPT_LINES` are retained."""
    own = NodeLogLine.unscoped.filter(node=node)
    with transaction.atomic():
        NodeLogLine.objects.bulk_create(
            NodeLogLine(
                node=node,
                at=datetime.fromtimestamp(line.at_s, UTC),
                source=line.source.value,
                level=LOG_LEVELS.index(line.level),
                text=line.text,
            )
            for line in batch.lines
        )
        ids = own.order_by("-pk").values_list("pk", flat=True)
        newest_gone = ids[KEPT_LINES : KEPT_LINES + 1].first()
        if newest_gone is not None:
            own.filter(pk__lte=newest_gone).delete()
        events.emit(f"node:{node.pk}", "node-log", {"node": node.pk})


def log_tail(node: Node, *, level: LogLevel, count: int) -> list[NodeLogLine]:
    """The last `count` lines of at least `level`, the newest last."""
    rows = NodeLogLine.unscoped.filter(node=node, level__gte=LOG_LEVELS.index(level))
    return list(rows.order_by("-pk")[:count])[::-1]


def log_view(node: Node, asked: QueryDict) -> dict[str, Any]:
    """Template context of the log by `level` and `lines` in `asked` (invalid: defaults), with the
    choices of both."""
    wanted = asked.get("level", "")
    level = LogLevel(wanted) if wanted in set(LOG_LEVELS) else LogLevel.DEBUG
    count = next((count for count in LINE_COUNTS if asked.get("lines") == str(count)), 200)
    lines = log_tail(node, level=level, count=count)
    return {
        "lines": lines,
        "level": level,
        "count": count,
        "levels": LOG_LEVELS,
        "counts": LINE_COUNTS,
    }


def prune_log(*, now: datetime) -> None:
    """Forget what is older than `KEPT`."""
    NodeLogLine.unscoped.filter(at__lt=now - KEPT).delete()
