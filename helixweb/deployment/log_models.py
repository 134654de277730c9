"""Rows of what nodes logged."""

from django.db import models

from helixweb.access.scope import InCluster
from runtime.protocol.log_levels import LogLevel, LogSource

# A line's level is its place here, so that "at least" can be asked for.
LOG_LEVELS = tuple(LogLevel)


class NodeLogLine(InCluster):
    """A line that a node's agent or stage logged, `at` by the node's clock."""

    cluster_path = "node__cluster"

    node = models.ForeignKey(
        "inventory.Node", on_delete=models.CASCADE, related_name="log_lines", db_index=False
    )
    at = models.DateTimeField(db_index=True)
    source = models.CharField(max_length=5, choices=[(one.value, one.value) for one in LogSource])
    level = models.PositiveSmallIntegerField(
        choices=list(enumerate(level.value for level in LOG_LEVELS))
    )
    text = models.TextField()

    class Meta:
        indexes = [models.Index(fields=["node", "-id"], name="node_log_newest_first")]

    @property
    def level_name(self) -> str:
        return LOG_LEVELS[self.level].value
