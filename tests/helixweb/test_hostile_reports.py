"""What a process says is refused by name where no database could keep it."""

from typing import Any

import pytest

from helixweb.inventory.models import Cluster
from runtime.protocol.control import CoordinatorReport
from tests.helixweb.process_doubles import FakeCoordinator
from tests.helixweb.request_traces import made_up_trace

REPORT = CoordinatorReport(
    generation=1, serving=True, window_s=10.0, requests_running=1, requests_waiting=0,
    requests_total=3, requests_failed_total=0, requests_rejected_total=0, prompt_tokens_total=100,
    output_tokens_total=50, prompt_tokens_per_s=10.0, output_tokens_per_s=5.0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"generation": 2**70}, "generation"),
        ({"requests_waiting": 2**31}, "requests_waiting"),
        ({"edge_tokens_total": {"source->tower": 2**70}}, "edge_tokens_total.source->tower"),
        ({"traces": [{"arrived_at": 6e16}]}, "traces.0.arrived_at"),
        ({"traces": [{"prompt_tokens": 2**70}]}, "traces.0.prompt_tokens"),
    ],
)
def test_a_number_that_cannot_be_kept_is_named(
    cluster: Cluster, user: Any, changes: dict[str, Any], field: str
) -> None:
    coordinator = FakeCoordinator(cluster, user)
    if "traces" in changes:
        whole = made_up_trace(7, arrived_at=1.7e9).model_dump(mode="json")
        changes = {"traces": [whole | trace for trace in changes["traces"]]}
    answer = coordinator.http.post(
        "/api/v1/coordinator/report", REPORT.model_dump(mode="json") | changes
    )
    assert answer.status_code == 400, answer.content
    assert [error["field"] for error in answer.json()["errors"]] == [field]
