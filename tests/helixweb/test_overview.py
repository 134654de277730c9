"""The overview leads from an empty site to the first token, and then shows how it goes."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from helixweb.deployment import services as deployment
from helixweb.deployment.options import DeployOptions
from helixweb.inventory.models import Cluster, RegionLink
from helixweb.monitoring.checklist import Step, checklist
from helixweb.monitoring.models import MetricSample
from helixweb.monitoring.overview import focus
from runtime.protocol.control import Phase
from tests.helixweb.process_doubles import STATS, FakeCluster, make_plan

pytestmark = pytest.mark.usefixtures("time_stands_still")


def steps_of(cluster: Cluster | None) -> dict[str, Step]:
    return {step.title: step for step in checklist(cluster, now=timezone.now())}


def done(cluster: Cluster) -> list[str]:
    return [title for title, step in steps_of(cluster).items() if step.done]


def bring_up(joined: FakeCluster, user: Any) -> None:
    deployment.deploy(joined.plan, user=user, options=DeployOptions(), now=timezone.now())
    for agent in joined.used_agents.values():
        agent.beat(Phase.READY, generation=1)


def page(browser: Client, **query: Any) -> str:
    response = browser.get("/", query)
    assert response.status_code == 200
    return response.content.decode()


def test_an_empty_site_shows_every_step_and_where_to_begin(browser: Client) -> None:
    html = page(browser)
    for title in ("Add nodes", "Know the network", "Plan", "Deploy", "Chat"):
        assert f"<h3>{title}" in html
    assert 'href="/clusters/"' in html
    assert not any(step.done for step in steps_of(None).values())


def test_steps_are_done_as_far_as_the_cluster_has_come(cluster: Cluster, user: Any) -> None:
    missing = RegionLink.objects.get(cluster=cluster, source="away", target="home")
    missing.delete()
    assert done(cluster) == ["Add nodes"]
    steps = steps_of(cluster)
    assert steps["Add nodes"].text == "3 declared, 0 of them joined."
    assert steps["Know the network"].text == "9 of 12 directed links are known."
    assert steps["Plan"].text == "No search for a plan yet."
    missing.save()
    make_plan(cluster)
    assert done(cluster) == ["Add nodes", "Know the network", "Plan"]
    assert "has no checkpoint; set the path" in steps_of(cluster)["Deploy"].text


def test_a_plan_whose_machines_are_all_there_can_be_deployed(cluster: Cluster, user: Any) -> None:
    joined = FakeCluster(cluster, user)
    step = steps_of(cluster)["Deploy"]
    assert (step.done, step.text) == (False, "The plan can be deployed now.")
    assert step.url == f"/deployments/new?plan={joined.plan.pk}"
    assert steps_of(cluster)["Add nodes"].text == "3 joined, 3 online."


def test_deploying_is_done_when_every_node_is_ready(cluster: Cluster, user: Any) -> None:
    joined = FakeCluster(cluster, user)
    row = deployment.deploy(joined.plan, user=user, options=DeployOptions(), now=timezone.now())
    step = steps_of(cluster)["Deploy"]
    assert (step.done, step.text) == (False, "tiny-llama is deploying.")
    assert step.url == f"/deployments/{row.pk}/"
    for agent in joined.used_agents.values():
        agent.beat(Phase.READY, generation=1)
    assert steps_of(cluster)["Deploy"].done
    assert not steps_of(cluster)["Chat"].done


def test_the_checklist_goes_once_a_token_was_put_out(
    cluster: Cluster, user: Any, browser: Client
) -> None:
    joined = FakeCluster(cluster, user)
    bring_up(joined, user)
    joined.coordinator.report(output_tokens_total=0)
    assert "Still to do" in page(browser)
    MetricSample.objects.all().delete()
    joined.coordinator.report(output_tokens_total=5)
    html = page(browser)
    assert "Still to do" not in html
    assert "Getting to the first token" not in html


def test_what_serves_is_shown_in_numbers_against_the_plan(
    cluster: Cluster, user: Any, browser: Client
) -> None:
    joined = FakeCluster(cluster, user)
    bring_up(joined, user)
    flow = joined.plan.flow_tokens_per_s
    joined.coordinator.report(
        output_tokens_per_s=flow / 4, prompt_tokens_per_s=flow / 4, ttft_p50_s=0.25, ttft_p95_s=1.5
    )
    html = page(browser)
    assert "tiny serves tiny-llama" in html
    assert "3 of 3" in html
    assert "50.0 %" in html  # efficiency: prompt and output together ÷ max flow
    assert "250 ms" in html
    assert "p50; p95 1.5 s" in html
    used = STATS.kv_pages_used / STATS.kv_pages_total
    assert f"{used:.1%}".replace("%", " %") in html
    assert "is ready on 3 nodes." in html
    browser.cookies["language"] = "zh-hans"
    assert "已在 3 个节点上就绪。" in page(browser)


def test_numbers_of_a_coordinator_that_fell_silent_are_not_shown_as_of_now(
    cluster: Cluster, user: Any, browser: Client
) -> None:
    joined = FakeCluster(cluster, user)
    bring_up(joined, user)
    joined.coordinator.report(output_tokens_per_s=4321.0)
    assert "4,321" in page(browser)
    long_ago = timezone.now() - timedelta(minutes=1)
    MetricSample.objects.update(at=long_ago)
    html = page(browser)
    assert "4,321" not in html
    assert "is not reporting" in html


def test_the_cluster_that_serves_is_in_focus_else_the_newest(cluster: Cluster, user: Any) -> None:
    newer = Cluster.objects.create(name="newer")
    assert focus() == newer
    joined = FakeCluster(cluster, user)
    deployment.deploy(joined.plan, user=user, options=DeployOptions(), now=timezone.now())
    assert focus() == cluster


def test_a_cluster_is_chosen_by_the_query_and_must_be_there(
    cluster: Cluster, browser: Client
) -> None:
    other = Cluster.objects.create(name="other")
    assert f"?cluster={other.pk}" in page(browser)
    assert f'hx-get="/?cluster={cluster.pk}"' in page(browser, cluster=cluster.pk)
    for query in ("99", "x", "9" * 30):
        assert browser.get("/", {"cluster": query}).status_code == 404


def test_the_part_that_changes_is_fetched_alone(cluster: Cluster, browser: Client) -> None:
    html = browser.get("/", headers={"HX-Request": "true"}).content.decode()
    assert "<h1>Overview</h1>" in html
    assert "<html" not in html
