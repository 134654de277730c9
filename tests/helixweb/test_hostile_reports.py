"""What a process says is refused by name where no database could keep it."""

from typing import Any

import pytest

from helixweb.inventory.models import Cluster
from tests.helixweb.process_doubles import REPORT, FakeCoordinator
from tests.helixweb.request_traces import made_up_trace


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
