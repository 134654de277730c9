"""What a report leaves in monitoring: a sample, traces, and one event for all open pages.

It runs in the transaction that stores the report, so nothing is worked out here that no one may
look at: pages ask for the rest.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from helixweb.common import events
from helixweb.monitoring import services
from helixweb.monitoring.models import NODE_NUMBERS, MetricSample
from helixweb.monitoring.traces import record_traces
from runtime.protocol.control import CoordinatorReport, StageStats

# What a sample says of its nodes goes with every event, but of so many only now and then.
MANY_NODES = 64
MANY_NODES_EVERY_S = 5
# As pages write them; a thousand nodes' are sent to every open page.
DIGITS = 4


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


def announce(sample: MetricSample) -> None:
    """Tell pages of a sample that was just stored, within its transaction.

    `nodes` is {"fields": names of columns, "rows": node -> its numbers in that order}, null where
    they are left out.
    """
    nodes = None
    if len(sample.nodes) <= MANY_NODES or sample.second % MANY_NODES_EVERY_S == 0:
        rows = {
            name: [_short(numbers[field]) for field in NODE_NUMBERS]
            for name, numbers in sample.node_numbers.items()
        }
        nodes = {"fields": NODE_NUMBERS, "rows": rows}
    document = {
        "cluster": sample.cluster_id,
        "at": sample.at.isoformat(),
        "simulated": sample.simulated,
        **sample.numbers,
        "nodes": nodes,
    }
    events.emit(f"metrics:{sample.cluster_id}", "metrics", document)


def _short(number: float | None) -> float | None:
    return round(number, DIGITS) if isinstance(number, float) else number
