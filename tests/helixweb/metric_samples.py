"""Recorded metrics for tests that begin in the middle of a history."""

from datetime import datetime
from typing import Any

from helixweb.inventory.models import Cluster
from helixweb.monitoring.models import MetricSample


def bare_sample(cluster: Cluster, at: datetime, *, output: float, **more: Any) -> MetricSample:
    values: dict[str, Any] = {
        "generation": 1, "prompt_tokens_per_s": 0.0, "running": 1, "waiting": 0,
        "entered_tokens_total": 0, "nodes": {}, **more,
    }  # fmt: skip
    return MetricSample(
        cluster=cluster,
        second=int(at.timestamp()),
        at=at,
        output_tokens_per_s=output,
        **values,
    )
