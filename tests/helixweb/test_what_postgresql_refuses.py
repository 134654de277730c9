"""SQLite keeps NUL in texts, and moments of any offset from UTC; PostgreSQL keeps neither."""

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from django.test import RequestFactory
from rest_framework.test import APIClient

from helixweb.common.rest.lists import TimeFilter
from helixweb.deployment.process_api import read_message
from helixweb.inventory.models import Change, Cluster
from runtime.protocol.node_log import LogBatch
from tests.helixweb.looking import answered


def test_moments_are_asked_for_in_utc(db: None) -> None:
    far = datetime(1447, 6, 17, 4, 47, tzinfo=timezone(timedelta(hours=22, minutes=14)))
    moments = TimeFilter(field_name="created_at", lookup_expr="gte")
    rows = moments.filter(Cluster.unscoped.all(), far)
    asked = rows.query.where.children[0].rhs
    assert asked == far
    assert asked.utcoffset() == timedelta(0)
    assert asked.tzinfo is UTC


def test_a_refusal_that_repeats_nul_is_in_the_change_log(api: APIClient) -> None:
    answered(api.post("/api/v1/clusters/", {"na\0me": "x"}), 400)
    told = Change.unscoped.get(action="refused").text
    assert "na␀me" in told
    assert "\0" not in told


def test_nul_in_what_a_process_says_is_replaced_and_nothing_else() -> None:
    said = ["a\0\0b", "\0", "\\u0000", "\\\0", "plain"]
    lines = [{"at_s": 1.0, "source": "agent", "level": "info", "text": text} for text in said]
    request: Any = RequestFactory().post(
        "/", json.dumps({"lines": lines}), content_type="application/json"
    )
    read = [line.text for line in read_message(LogBatch, request).lines]
    assert read == ["a��b", "�", "\\u0000", "\\�", "plain"]
