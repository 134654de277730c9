"""A slow node and a full KV cache are named on the page and by REST, from what processes report."""

import time
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F
from django.test import Client
from rest_framework.test import APIClient

from helixweb.monitoring.models import MetricSample
from planner.serialization import plan_from_dict
from runtime.protocol.phases import Phase
from tests.helixweb.looking import statements
from tests.helixweb.process_doubles import STATS, FakeCluster

pytestmark = pytest.mark.usefixtures("time_stands_still")


@pytest.fixture
def joined(joined: FakeCluster) -> FakeCluster:
    joined.deploy()
    return joined


def serve(
    joined: FakeCluster, *, slow: str = "", full: str = "", steps: int = 7, **report: Any
) -> None:
    """Two heartbeats and reports, two seconds apart; every node computes half of the time.

    Tokens are as many as the plan takes nodes to be capable of; the slow one makes half as many
    and computes all the time.
    """
    flows = plan_from_dict(joined.plan.document).flow.nodes
    for seconds in (100, 102):
        MetricSample.unscoped.update(second=F("second") - 2, at=F("at") - timedelta(seconds=2))
        for name, agent in joined.used_agents.items():
            share, speed = (1.0, 0.5) if name == slow else (0.5, 1.0)
            tokens = share * speed * flows[name].capacity_tokens_per_s * seconds
            stage = STATS.model_copy(
                update={
                    "uptime_s": float(seconds),
                    "busy_s_total": share * seconds,
                    "prompt_tokens_total": 0,
                    "decode_tokens_total": int(tokens),
                    "steps_total": steps,
                    "kv_pages_used": 97 if name == full else 10,
                }
            )
            agent.beat(Phase.READY, generation=1, stage=stage.model_dump(mode="json"))
        joined.coordinator.report(**report)


def test_a_node_at_half_speed_is_named(
    joined: FakeCluster, browser: Client, api: APIClient
) -> None:
    slow = min(joined.used_agents)
    serve(joined, slow=slow)
    answer = api.get(f"/api/v1/clusters/{joined.cluster.pk}/bottleneck/").json()
    assert (answer["limit"], answer["subject"]) == ("slow node", slow)
    page = browser.get("/monitor/").content.decode()
    assert f"{slow} is slow: it runs at 50% of the speed the plan gives it." in page


def test_what_limits_is_worked_out_once_for_all_who_look_at_a_sample(
    joined: FakeCluster, api: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not any("monitoring_tracedrequest" in sql for sql in statements(lambda: serve(joined)))
    address = f"/api/v1/clusters/{joined.cluster.pk}/bottleneck/"
    asked = []
    for _viewer in range(2):
        sent = statements(lambda: api.get(address))
        # However long the next one waits for a busy machine.
        later_s = time.time() + 60
        monkeypatch.setattr(time, "time", lambda later_s=later_s: later_s)
        asked.append(sum("monitoring_tracedrequest" in sql for sql in sent))
    assert asked == [1, 0]
