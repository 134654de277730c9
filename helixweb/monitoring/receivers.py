"""What monitoring hears from the apps below."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from helixweb.monitoring import services
from helixweb.monitoring.live import announce
from helixweb.monitoring.traces import record_traces
from runtime.protocol.control import CoordinatorReport, StageStats


def keep_report(
    *,
    cluster_id: int,
    report: CoordinatorReport,
    node_stats: Mapping[str, StageStats],
    at: datetime,
    **_: Any,  # the signal's own sender and name
) -> None:
    """A coordinator reported; runs in the transaction that stores the report."""
    sample = services.record_sample(
        cluster_id=cluster_id, report=report, node_stats=node_stats, at=at
    )
    record_traces(cluster_id, report.traces)
    if sample is not None:
        announce(sample)
