"""What open pages hear of a sample: one event, written once for all of them."""

import dataclasses
from typing import Any

from helixweb.common import events
from helixweb.monitoring.load import find
from helixweb.monitoring.models import MetricSample
from helixweb.monitoring.presentation import serving_of
from helixweb.monitoring.services import NODE_NUMBERS, cluster_numbers, node_numbers

# What a sample says of its nodes goes with every event, but of so many only now and then.
MANY_NODES = 64
MANY_NODES_EVERY_S = 5
# Of the rates of seconds, no more can be seen.
FINDING_EVERY_S = 2
# As pages write them; a thousand nodes' are sent to every open page.
DIGITS = 4


def announce(sample: MetricSample) -> None:
    """Tell pages of a sample that was just stored, within its transaction.

    `nodes` is a table of what nodes did, null where they are left out; `finding` what limits now,
    which is not there between.
    """
    document = {**cluster_numbers(sample), "nodes": None}
    if len(sample.nodes) <= MANY_NODES or sample.second % MANY_NODES_EVERY_S == 0:
        document["nodes"] = _table(sample)
    if sample.second % FINDING_EVERY_S == 0:
        serving = serving_of(sample.cluster, sample)
        finding = find(sample.cluster, serving, sample, now=sample.at)
        document["finding"] = None if finding is None else dataclasses.asdict(finding)
    events.emit(f"metrics:{sample.cluster_id}", "metrics", document)


def _table(sample: MetricSample) -> dict[str, Any]:
    """{"fields": names of columns, "rows": node -> its numbers in that order}."""
    rows = {
        name: [_short(numbers[field]) for field in NODE_NUMBERS]
        for name, numbers in node_numbers(sample).items()
    }
    return {"fields": list(NODE_NUMBERS), "rows": rows}


def _short(number: float | None) -> float | None:
    return round(number, DIGITS) if isinstance(number, float) else number
