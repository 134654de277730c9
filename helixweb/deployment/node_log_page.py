"""The log on a node's page: which lines are asked for, and they alone for a page that follows."""

from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from helixweb.deployment.models import LOG_LEVELS, NodeLogLine
from helixweb.deployment.node_log import KEPT_LINES, log_tail
from helixweb.inventory.models import Node
from runtime.protocol.log_levels import LogLevel

LINE_COUNTS = (50, 200, KEPT_LINES)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogView:
    """The last lines of at least `level`, `count` at most, and what else could be asked for."""

    lines: list[NodeLogLine]
    level: LogLevel
    count: int
    levels: tuple[LogLevel, ...] = LOG_LEVELS
    counts: tuple[int, ...] = LINE_COUNTS


def log_view(node: Node, asked: QueryDict) -> LogView:
    """What `asked` says in `level` and `lines`; for what it does not say well, the defaults."""
    wanted = asked.get("level", "")
    level = LogLevel(wanted) if wanted in set(LOG_LEVELS) else LogLevel.DEBUG
    count = next((count for count in LINE_COUNTS if asked.get("lines") == str(count)), 200)
    return LogView(lines=log_tail(node, level=level, count=count), level=level, count=count)


@require_GET
@never_cache
def node_log(request: HttpRequest, pk: int, node_pk: int) -> HttpResponse:
    """The lines alone; `?level=` and `?lines=`."""
    node = get_object_or_404(Node, pk=node_pk, cluster_id=pk)
    return render(request, "deployment/_log_lines.html", {"log": log_view(node, request.GET)})
