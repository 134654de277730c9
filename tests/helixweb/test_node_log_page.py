"""The tail of a node's log: taken from its agent, kept within bounds, shown and read back."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from rest_framework.test import APIClient

from helixweb.common.models import Event
from helixweb.deployment import node_log
from helixweb.deployment.log_models import NodeLogLine
from helixweb.inventory.models import Cluster
from tests.helixweb.looking import answered, contains, program_of, shows
from tests.helixweb.process_doubles import FakeAgent

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.fixture
def agent(cluster: Cluster, user: Any) -> FakeAgent:
    return FakeAgent(cluster, "tower", user, port=7001)


def line(text: str, *, level: str = "info", at: datetime = NOW) -> dict[str, Any]:
    return {"at_s": at.timestamp(), "source": "stage", "level": level, "text": text}


def tell(agent: FakeAgent, *lines: dict[str, Any]) -> None:
    answered(agent.http.post("/api/v1/agent/log", {"lines": list(lines)}), 204)


def test_a_node_keeps_its_last_lines_only_and_each_its_own(
    agent: FakeAgent, cluster: Cluster, user: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_log, "KEPT_LINES", 5)
    other = FakeAgent(cluster, "laptop", user, port=7002)
    tell(other, line("of another node"))
    for first in (0, 4, 8):
        tell(agent, *(line(f"line {number}") for number in range(first, first + 4)))
    kept = NodeLogLine.unscoped.filter(node=agent.row).order_by("pk")
    assert [row.text for row in kept] == [f"line {number}" for number in range(7, 12)]
    assert NodeLogLine.unscoped.filter(node=other.row).count() == 1


def test_old_lines_are_forgotten(agent: FakeAgent) -> None:
    tell(agent, line("old", at=NOW - timedelta(days=8)), line("new"))
    node_log.prune_log(now=NOW)
    assert [row.text for row in NodeLogLine.unscoped.all()] == ["new"]


def test_the_page_of_the_node_hears_of_new_lines(agent: FakeAgent) -> None:
    tell(agent, line("hello"))
    event = Event.objects.get(type="node-log")
    assert event.topic == f"node:{agent.row.pk}"
    assert event.data == {"node": agent.row.pk}, "the lines themselves are fetched by who looks"


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [line("x" * 501)],
        [line("x", level="loud")],
        [line("x")] * 101,
        [{**line("x"), "at_s": 1e12}],
    ],
)
def test_what_is_out_of_bounds_is_refused(agent: FakeAgent, lines: list[dict[str, Any]]) -> None:
    answered(agent.http.post("/api/v1/agent/log", {"lines": lines}), 400)
    assert not NodeLogLine.unscoped.exists()


def test_an_agent_that_tells_without_end_is_held_back(agent: FakeAgent) -> None:
    statuses = {
        agent.http.post("/api/v1/agent/log", {"lines": [line("again")]}).status_code
        for _ in range(61)
    }
    assert statuses == {204, 429}


def test_the_page_shows_the_lines_that_are_asked_for(agent: FakeAgent, browser: Client) -> None:
    tell(agent, line("<b>usual</b>"), line("careful", level="warning"), line("bad", level="error"))
    page = f"/clusters/{agent.row.cluster_id}/nodes/{agent.row.pk}/"
    shows(browser.get(page), "&lt;b&gt;usual&lt;/b&gt;", f"node:{agent.row.pk}")
    for address in (f"{page}?level=warning&lines=50", f"{page}log?level=warning&lines=50"):
        text = browser.get(address).content.decode()
        contains(text, "careful", "bad")
        assert "usual" not in text
    assert "<html" not in browser.get(f"{page}log").content.decode()
    assert "usual" in browser.get(f"{page}log?level=loud&lines=-1").content.decode()
    assert browser.get(f"/clusters/{agent.row.cluster_id + 1}/nodes/1/log").status_code == 404


def test_a_page_without_lines_says_where_they_come_from(agent: FakeAgent, browser: Client) -> None:
    page = f"/clusters/{agent.row.cluster_id}/nodes/{agent.row.pk}/log"
    assert "Nothing is logged yet" in browser.get(page).content.decode()
    assert "No line of this level" in browser.get(f"{page}?level=error").content.decode()


def test_programs_read_the_log_with_scope_read(agent: FakeAgent, user: Any, api: APIClient) -> None:
    tell(agent, line("fine"), line("bad", level="error"))
    path = f"/api/v1/nodes/{agent.row.pk}/log"
    assert [row["text"] for row in api.get(path).json()] == ["fine", "bad"]
    assert [row["text"] for row in api.get(path, {"limit": 1}).json()] == ["bad"]
    (row,) = api.get(path, {"level": "error"}).json()
    assert (row["level"], row["source"], row["at"]) == ("error", "stage", "2026-11-21T12:00:00Z")
    assert api.get(path, {"level": "loud"}).status_code == 400
    assert api.get(path, {"offset": 3}).status_code == 400
    assert APIClient().get(path).status_code == 401
    assert program_of(user, "write").get(path).status_code == 403
