"""The overview leads from an empty site to the first token, and then shows how it goes."""

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from helixweb.access import keys
from helixweb.access.scope import WHOLE_SITE
from helixweb.alerting.models import Alert, AlertRule
from helixweb.alerting.states import State
from helixweb.common.api_keys import create_api_key
from helixweb.deployment.models import Deployment, Profiling, Status
from helixweb.deployment.profiling import order_profiling
from helixweb.inventory.models import Cluster, RegionLink
from helixweb.monitoring.checklist import Step, checklist
from helixweb.monitoring.models import MetricSample
from helixweb.monitoring.views import focus
from runtime.protocol.phases import Phase
from tests.helixweb.looking import answered, contains, tight
from tests.helixweb.process_doubles import STATS, FakeCluster, make_plan, served

pytestmark = pytest.mark.usefixtures("time_stands_still")


def steps_of(cluster: Cluster | None, user: Any) -> dict[str, Step]:
    return {step.title: step for step in checklist(cluster, user=user, now=timezone.now())}


def done(cluster: Cluster, user: Any) -> list[str]:
    return [title for title, step in steps_of(cluster, user).items() if step.done]


def page(browser: Client, **query: Any) -> str:
    response = answered(browser.get("/", query), 200)
    return response.content.decode()


STEPS = [
    "Add a model", "Add machines", "Measure the nodes", "Measure the links", "Compute a plan",
    "Deploy", "Ask the model", "Create an API key",
]  # fmt: skip


def test_an_empty_site_shows_every_step_and_where_to_begin(browser: Client, user: Any) -> None:
    html = page(browser)
    assert list(steps_of(None, user)) == STEPS
    assert all(f"<h3>{title}" in tight(html) for title in STEPS)
    contains(html, 'href="/models/new"', 'href="/clusters/"')
    assert not any(step.done for step in steps_of(None, user).values())


def test_steps_are_done_as_far_as_the_cluster_has_come(cluster: Cluster, user: Any) -> None:
    missing = RegionLink.unscoped.get(cluster=cluster, source="away", target="home")
    missing.delete()
    assert done(cluster, user) == ["Measure the nodes"]  # the problem file says how fast they are
    steps = steps_of(cluster, user)
    assert "tiny-llama has no checkpoint yet" in steps["Add a model"].text
    assert steps["Add machines"].text == (
        "3 declared, 0 of them joined. No coordinator has joined yet."
    )
    assert steps["Measure the links"].text == "9 of 12 directed links are known."
    assert steps["Compute a plan"].text == "No search for a plan yet."
    missing.save()
    make_plan(cluster)
    assert done(cluster, user) == ["Measure the nodes", "Measure the links", "Compute a plan"]
    assert "has no checkpoint; set the path" in steps_of(cluster, user)["Deploy"].text


def test_what_a_step_waits_for_is_said_with_its_progress(
    joined: FakeCluster, cluster: Cluster, user: Any, browser: Client
) -> None:
    model, now = joined.plan.model, timezone.now()
    first, second, *_ = cluster.nodes.order_by("name")
    cluster.nodes.filter(pk__in=(first.pk, second.pk)).update(profile_name="")
    order_profiling(first, model, user=user, now=now)
    Profiling.unscoped.update(state="measuring", done=0.4)
    failed = order_profiling(second, model, user=user, now=now)
    Profiling.unscoped.filter(pk=failed.pk).update(
        state="failed", message="no memory", ended_at=now
    )
    step = steps_of(cluster, user)["Measure the nodes"]
    assert (step.done, step.progress) == (False, 0.4)
    assert step.text == (
        "1 of 3 nodes have a profile for tiny-llama. "
        f"Under way: {first.name} 40%. {second.name} failed: no memory"
    )
    contains(page(browser), "every 2s", f'action="{step.url}"')
    browser.post(step.url, step.fields)
    ordered = Profiling.unscoped.filter(state="ordered").values_list("node__name", flat=True)
    assert list(ordered) == [second.name], "the first is being measured, the third has a profile"
    assert step.action not in page(browser)
    steps = steps_of(cluster, user)
    assert (steps["Deploy"].done, steps["Deploy"].text) == (False, "The plan can be deployed now.")
    assert steps["Deploy"].url == f"/deployments/new?plan={joined.plan.pk}"
    assert steps["Add machines"].text == "3 joined, 3 online."
    row = joined.deploy()
    for ready, agent in enumerate(joined.used_agents.values()):
        step = steps_of(cluster, user)["Deploy"]
        assert not step.done
        assert step.text.startswith("tiny-llama is deploying.")
        assert step.text.endswith(f"{ready} of {len(joined.used_agents)} nodes are ready.")
        assert (step.progress, step.url) == (
            ready / len(joined.used_agents),
            f"/deployments/{row.pk}/",
        )
        agent.beat(Phase.READY, generation=1)
    steps = steps_of(cluster, user)
    assert steps["Deploy"].done
    assert not steps["Ask the model"].done
    assert steps["Ask the model"].url == f"/playground/?deployment={row.pk}"


def test_a_key_counts_for_its_owner_while_it_may_send_requests(cluster: Cluster, user: Any) -> None:
    make_key = partial(create_api_key, name="shell", user=user, scopes=["serve"])
    keys.end(make_key())
    make_key(scopes=["read"])
    make_key(cluster=Cluster.objects.create(name="other"))
    assert not steps_of(cluster, user)["Create an API key"].done
    make_key(cluster=cluster)
    assert steps_of(cluster, user)["Create an API key"].done


def test_the_steps_fold_after_a_token_came(joined: FakeCluster, browser: Client) -> None:
    served(joined)
    joined.coordinator.report(output_tokens_total=0)
    assert '<section class="card" id="first-token"' in page(browser)
    MetricSample.unscoped.all().delete()
    joined.coordinator.report(output_tokens_total=5)
    html = page(browser)
    assert '<details class="card" id="first-token"' in html
    assert "<h3>Ask the model" in tight(html)
    refreshed = browser.get("/", headers={"HX-Request": "true"}).content.decode()
    assert "first-token" not in refreshed


def test_what_serves_is_shown_in_numbers(joined: FakeCluster, browser: Client) -> None:
    served(joined)
    flow = joined.plan.flow_tokens_per_s
    joined.coordinator.report(
        output_tokens_per_s=flow / 4, prompt_tokens_per_s=flow / 4, ttft_p50_s=0.25, ttft_p95_s=1.5
    )
    html = page(browser)
    contains(html, "tiny serves tiny-llama", "3 of 3")
    assert "Efficiency" not in html  # a share of full load is none
    contains(html, "250 ms", "p50; p95 1.5 s")
    used = STATS.kv_pages_used / STATS.kv_pages_total
    contains(html, f"{used:.1%}".replace("%", " %"), "is ready on 3 nodes.")
    browser.cookies["language"] = "zh-hans"
    assert "已在 3 个节点上就绪。" in page(browser)


def test_numbers_of_a_coordinator_that_fell_silent_are_not_shown_as_of_now(
    joined: FakeCluster, browser: Client
) -> None:
    served(joined)
    joined.coordinator.report(output_tokens_per_s=4321.0)
    assert "4,321" in page(browser)
    long_ago = timezone.now() - timedelta(minutes=1)
    MetricSample.unscoped.update(at=long_ago, second=int(long_ago.timestamp()))
    html = page(browser)
    assert "4,321" not in html
    assert "is not reporting" in html


def test_the_cluster_that_serves_is_in_focus_else_the_newest(cluster: Cluster, user: Any) -> None:
    newer = Cluster.objects.create(name="newer")
    assert focus(WHOLE_SITE) == newer
    joined = FakeCluster(cluster, user)
    joined.deploy()
    assert focus(WHOLE_SITE) == cluster


def test_a_cluster_is_chosen_by_query_and_must_exist(cluster: Cluster, browser: Client) -> None:
    other = Cluster.objects.create(name="other")
    assert f"?cluster={other.pk}" in page(browser)
    assert f'hx-get="/?cluster={cluster.pk}"' in page(browser, cluster=cluster.pk)


def test_a_chart_of_what_serves_moves_beside_what_limits_it_and_what_waits_for_a_person(
    joined: FakeCluster, cluster: Cluster, browser: Client
) -> None:
    assert "flow-load" not in page(browser)
    served(joined)
    joined.coordinator.report()
    html = page(browser)
    for shown in ("flow-load", "tokens", "ttft", "itl", "bottleneck"):
        assert f'id="{shown}"' in html
    assert 'data-range="15m"' in html
    moved = browser.get("/monitor/chart/flow-load/", {"cluster": cluster.pk, "range": "15m"}).json()
    nodes = moved["figure"]["data"][0]["node"]
    assert len(nodes["color"]) == len(nodes["label"])
    assert "fires" not in html
    rule = AlertRule.objects.create(
        cluster=cluster, name="slow", kind="ttft_p95", threshold=1, clears_at=1
    )
    Alert.objects.create(
        cluster=cluster, rule=rule, subject="mini", severity=rule.severity,
        state=State.FIRING.value, since=timezone.now(),
    )  # fmt: skip
    refreshed = tight(browser.get("/", headers={"HX-Request": "true"}).content.decode())
    assert f'href="/alerts/?cluster={joined.cluster.pk}">1 alert fires' in refreshed
    Deployment.unscoped.update(status=Status.FAILED, message="mini: no memory")
    assert "mini: no memory" in page(browser)
