"""What runs no model says so, on every page and at every door."""

import pytest
from django.test import Client
from rest_framework.test import APIClient

from tests.helixweb.looking import fresh
from tests.helixweb.markup import tight
from tests.helixweb.process_doubles import HARDWARE, FakeCluster, served

pytestmark = pytest.mark.usefixtures("time_stands_still")

MARK = "emulated</span>"


def emulate(joined: FakeCluster) -> str:
    """One node of the plan turns out to be emulated; its name."""
    name, agent = next(iter(joined.used_agents.items()))
    agent.identity["hardware"] = {**HARDWARE, "emulated": True}
    agent.move(str(agent.identity["data_endpoint"]))
    return name


def test_a_deployment_is_marked_wherever_it_shows_once_a_node_is_emulated(
    joined: FakeCluster, api: APIClient, browser: Client
) -> None:
    deployment = served(joined)
    own = f"/deployments/{deployment.pk}/"
    pages = (own, "/deployments/", "/", f"/monitor/?cluster={joined.cluster.pk}")
    for address in (*pages, "/playground/"):
        assert "emulated" not in browser.get(address).content.decode(), address
    assert api.get(f"/api/v1{own}").json()["emulated"] is False
    plan = joined.coordinator.plan
    assert not plan.emulated
    name = emulate(joined)
    assert (fresh(deployment).generation, deployment.emulated) == (2, True)
    joined.ready(generation=2)
    shown = api.get(f"/api/v1{own}").json()
    assert shown["emulated"] is True
    assert {row["node_name"]: row["emulated"] for row in shown["assignments"]} == (
        dict.fromkeys(joined.used_agents, False) | {name: True}
    )
    plan = joined.coordinator.plan
    assert plan.emulated
    page = browser.get(own).content.decode()
    assert page.count(MARK) == 2  # beside the status, and beside the node
    assert "Nodes of this deployment run no model" in page
    for address in pages:
        assert MARK in browser.get(address).content.decode(), address
    assert "(emulated)</option>" in tight(browser.get("/playground/").content.decode())
