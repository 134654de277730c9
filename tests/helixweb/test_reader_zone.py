"""Every moment on a page is of the reader's time zone: in words, in tables and in charts."""

from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from helixweb.common import events
from helixweb.common.models import Event
from helixweb.inventory.models import Cluster
from helixweb.monitoring.services import record_traces
from tests.helixweb.looking import answered, contains
from tests.helixweb.metric_samples import bare_sample
from tests.helixweb.request_traces import made_up_trace

NOON = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
IN_TOKYO = "2026-03-01 21:00:00"


@pytest.fixture
def reader(browser: Client, monkeypatch: pytest.MonkeyPatch) -> Client:
    """Somebody in Tokyo, at noon in Greenwich."""
    monkeypatch.setattr(timezone, "now", lambda: NOON)
    browser.cookies["zone"] = "Asia/Tokyo"
    return browser


def text(reader: Client, path: str) -> str:
    answer = answered(reader.get(path), 200)
    return answer.content.decode()


def sampled(cluster: Cluster, **more: Any) -> None:
    bare_sample(cluster, NOON, output=432.0, **more).save()


def test_the_monitor_writes_all_in_the_readers_zone(cluster: Cluster, reader: Client) -> None:
    sampled(cluster)
    html = text(reader, f"/monitor/?cluster={cluster.pk}")
    assert f"<td>{IN_TOKYO}</td><td>432</td>" in html
    assert '"2026-03-01T21:00:00+09:00"' in html, "in charts, too"
    assert "times in Asia/Tokyo" in html
    assert "UTC" not in html


def test_what_happened_last_is_told_in_the_readers_zone(cluster: Cluster, reader: Client) -> None:
    events.emit(f"cluster:{cluster.pk}", "event", {"text": "A lamp was lit."})
    Event.objects.update(created_at=NOON)
    html = text(reader, "/")
    contains(html, "times in Asia/Tokyo", ">21:00:00</time>")


def test_a_request_names_the_zone_of_its_arrival(cluster: Cluster, reader: Client) -> None:
    record_traces(cluster.pk, [made_up_trace(0)])
    assert f"{IN_TOKYO} JST" in text(reader, "/requests/0000000000000000/")
    html = text(reader, "/requests/")
    assert "UTC" not in html
