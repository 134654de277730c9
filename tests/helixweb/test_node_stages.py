"""What a node does in a deployment, as its page, the list of nodes and the network show it."""

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from helixweb.deployment.models import Deployment, NodeAssignment
from helixweb.deployment.stages import memory_chart
from helixweb.inventory.models import Node
from helixweb.inventory.views.network import links_in_use
from planner.domain.cluster import COORDINATOR
from runtime.protocol.control import StageStats
from tests.helixweb.looking import contains, tight
from tests.helixweb.process_doubles import FakeCluster

pytestmark = pytest.mark.usefixtures("time_stands_still")

STATS = StageStats(
    kv_pages_total=100, kv_pages_used=40, kv_pages_cached=10, sequences=3, steps_total=7,
    prompt_tokens_total=11, decode_tokens_total=13, busy_s_total=1.0, uptime_s=2.0,
    weights_bytes=2_000_000, kv_bytes=1_000_000,
)  # fmt: skip


@pytest.fixture
def deployed(joined: FakeCluster, user: Any) -> Deployment:
    """The tiny cluster with a plan at work, every stage ready."""
    row = joined.deploy()
    NodeAssignment.unscoped.update(
        phase="ready", observed_generation=row.generation, stats=STATS.model_dump(mode="json")
    )
    return row


def placed(deployed: Deployment) -> Node:
    node = deployed.assignments.select_related("node").order_by("pk")[0].node
    assert node is not None
    return node


def test_a_node_page_tells_layers_memory_and_phases(browser: Client, deployed: Deployment) -> None:
    node = placed(deployed)
    page = browser.get(reverse("node", args=[node.cluster_id, node.pk])).content.decode()
    assert "40 of 100 pages in use, 10 kept for prompts" in page
    contains(page, "Memory by component", "11 prompt, 13 decode")
    contains(page, reverse("deployment", args=[deployed.pk]), deployed.topic)
    listed = tight(browser.get(reverse("nodes")).content.decode())
    assert '<meter data-meter="kv" min="0" max="1" high="0.9" value="0.400"' in listed


def test_the_components_of_memory_add_up_to_what_the_node_has(deployed: Deployment) -> None:
    node = placed(deployed)
    node.hardware = {
        "memory_bytes": 9_000_000,
        "memory_budget_bytes": 5_000_000,
        "gpus": [{"name": "T4", "memory_bytes": 6_000_000}],
    }
    chart = memory_chart(node, STATS)
    sizes = {trace["name"]: trace["x"][0] for trace in chart.figure["data"]}
    assert sizes == pytest.approx(
        {
            "weights": 2.0, "KV cache in use": 0.4, "KV cache kept for prompts": 0.1,
            "KV cache free": 0.5, "left for computing": 2.0, "not for the stage": 1.0,
        }
    )  # fmt: skip
    assert sum(sizes.values()) == pytest.approx(6.0)
    assert chart.figure["layout"]["xaxis"]["title"]["text"] == "MB"
    assert chart.rows[0][-1] == "6 MB"


def test_the_plans_links_at_work_carry_its_flow(browser: Client, deployed: Deployment) -> None:
    used = links_in_use(deployed.cluster)
    flow = deployed.plan.document["flow"]["edges"]
    assert len(used) == sum(edge["flow_tokens_per_s"] > 0 for edge in flow)
    assert any(source == COORDINATOR for source, _ in used)
    page = browser.get(reverse("network", args=[deployed.cluster_id])).content.decode()
    assert f"{len(used)} carry the plan&#x27;s flow" in page
    Deployment.unscoped.update(status="stopped")
    assert links_in_use(deployed.cluster) == frozenset()
