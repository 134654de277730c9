"""Requests that are not over, as the coordinators told last. Reads only."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from helixweb.deployment.models import LatestReport
from helixweb.inventory.models import Cluster, NodeState
from runtime.protocol.control import LiveRequestState


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRequestRow:
    """One that waits or runs; `nodes` are its pipeline, none while it waits."""

    request: str
    state: str
    arrived_at: datetime
    age_s: float
    prompt_tokens: int
    output_tokens: int
    nodes: tuple[str, ...]
    model_name: str
    cluster: Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRequests:
    """How many wait and run; `rows` are the oldest, at most as many as each report lists."""

    waiting: int
    running: int
    rows: tuple[LiveRequestRow, ...]

    @property
    def unlisted(self) -> int:
        return max(0, self.waiting + self.running - len(self.rows))


def live_requests(*, now: datetime) -> LiveRequests:
    """Of every cluster that the reader may see, by coordinators that can be heard."""
    waiting = running = 0
    rows: list[LiveRequestRow] = []
    for told in LatestReport.objects.select_related("coordinator__cluster"):
        if told.coordinator.state_at(now) is not NodeState.ONLINE:
            continue
        waiting += told.report["requests_waiting"]
        running += told.report["requests_running"]
        rows += (_row(one, told) for one in told.report.get("requests", ()))
    rows.sort(key=lambda row: (row.state != LiveRequestState.WAITING, row.arrived_at))
    return LiveRequests(waiting=waiting, running=running, rows=tuple(rows))


def _row(one: dict[str, Any], told: LatestReport) -> LiveRequestRow:
    return LiveRequestRow(
        request=one["request"],
        state=one["state"],
        arrived_at=told.at - timedelta(seconds=one["age_s"]),
        age_s=one["age_s"],
        prompt_tokens=one["prompt_tokens"],
        output_tokens=one["output_tokens"],
        nodes=tuple(one["nodes"]),
        model_name=one["model_name"],
        cluster=told.coordinator.cluster,
    )
