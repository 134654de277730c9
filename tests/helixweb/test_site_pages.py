"""The overview, which leads from an empty site to the first token and then shows how it goes;
settings, profiles, incumbents and the demo cluster."""

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from helixweb.access import keys
from helixweb.access.scope import WHOLE_SITE
from helixweb.alerting.models import Alert, AlertRule
from helixweb.alerting.states import State
from helixweb.common.api_keys import create_api_key
from helixweb.deployment.models import Deployment, Profiling, Status
from helixweb.deployment.profiling import order_profiling
from helixweb.inventory.models import Cluster, JoinToken, Node, Origin, Profile, RegionLink
from helixweb.inventory.services import joining, problems, records
from helixweb.monitoring.checklist import Step, checklist
from helixweb.monitoring.models import MetricSample
from helixweb.monitoring.views import focus
from helixweb.planning.models import Incumbent, Plan, PlanRun, Simulation
from helixweb.planning.services import fit as planning_fit
from planner.plan_options import PlanOptions
from runtime.protocol.phases import Phase
from tests.helixweb.looking import answered, contains, fresh, tight
from tests.helixweb.process_doubles import STATS, FakeCluster, make_plan, served
from tests.helixweb.searching import begun, claimed, found_for

pytestmark = pytest.mark.usefixtures("time_stands_still")


def html(browser: Client, name: str, *args: int, **query: str) -> str:
    response = answered(browser.get(reverse(name, args=args), query), 200)
    return response.content.decode()


def test_times_are_shown_in_the_zone_that_was_chosen(browser: Client, user: object) -> None:
    cluster = records.create(Cluster, name="c")
    joining.create_join_token(cluster, "node", user)
    noon = timezone.now().replace(year=2026, month=1, day=5, hour=12, minute=0, second=0)
    JoinToken.unscoped.update(created_at=noon)
    assert "2026-01-05 12:00:00 UTC" in html(browser, "join-tokens")
    browser.cookies["browser_zone"] = "Asia/Shanghai"
    assert "2026-01-05 20:00:00 CST" in html(browser, "join-tokens")
    chosen = browser.post(reverse("settings"), {"theme": "dark", "zone": "Europe/Berlin"})
    assert chosen.status_code == 302
    page = html(browser, "join-tokens")
    contains(page, "2026-01-05 13:00:00 CET", 'data-theme="dark"')
    browser.post(reverse("settings"), {"theme": "", "zone": ""})
    assert "2026-01-05 20:00:00 CST" in html(browser, "join-tokens")


def test_a_zone_that_is_none_is_refused_and_a_cookie_of_one_is_ignored(browser: Client) -> None:
    assert browser.post(reverse("settings"), {"zone": "Mars/Base"}).status_code == 422
    browser.cookies["zone"] = "../../etc/passwd"
    assert 'data-zone="UTC"' in html(browser, "settings")


def test_a_token_can_be_revoked_in_time(browser: Client, cluster: Cluster, user: object) -> None:
    unused, used = (joining.create_join_token(cluster, "node", user) for _ in range(2))
    used.used_at = timezone.now()  # by the first of a machine's nodes
    used.save()
    assert "open until" in html(browser, "join-tokens")
    assert "expired" not in html(browser, "join-tokens")
    for token in (used, unused):
        revoke = reverse("join-token-revoke", args=[token.pk])
        assert revoke in html(browser, "join-tokens")
        browser.post(revoke)
        assert revoke not in html(browser, "join-tokens")
        assert fresh(token).expires_at <= timezone.now()
        assert "had expired already" in browser.post(revoke, follow=True).content.decode()
    assert "expired" in html(browser, "join-tokens")


def test_jobs_of_all_kinds_stand_in_one_list(browser: Client, plan: Plan) -> None:
    Simulation.unscoped.update(status="failed", error="out of luck")
    page = html(browser, "jobs")
    contains(page, f"search {plan.run_id}", "out of luck", "1 failed")
    only = browser.get(reverse("jobs"), {"kind": "simulation", "status": "failed"}).context["page"]
    assert [job["kind"] for job in only] == ["simulation"]
    assert "No job matches" in html(browser, "jobs", kind="mix")
    assert "No search matches" in html(browser, "plan-runs", status="running")


def test_the_demo_cluster_is_loaded_once_and_can_be_planned(browser: Client) -> None:
    assert "Load the demo cluster" in html(browser, "clusters")
    for _ in range(2):
        answer = browser.post(reverse("cluster-demo"))
        assert answer.headers["Location"] == f"/plans/new?cluster={Cluster.unscoped.get().pk}"
    assert Node.unscoped.count() == 24
    assert "Load the demo cluster" not in html(browser, "clusters")
    (model,) = problems.models_of(Cluster.unscoped.get())
    fit = planning_fit.preview_fit(cluster=Cluster.unscoped.get(), model=model)
    assert fit["fits"]


def test_profiles_are_listed_by_where_they_come_from(browser: Client, cluster: Cluster) -> None:
    Profile.unscoped.filter(name="big").update(origin=Origin.MEASURED)
    found = browser.get(reverse("profiles"), {"origin": "measured"})
    assert [row.name for row in found.context["profiles"]] == ["big"]
    assert "1 of 1 measured here" in found.content.decode()
    assert "No profile matches" in html(browser, "profiles", origin="estimated")
    page = html(browser, "profile", Profile.unscoped.get(name="big").pk)
    contains(page, "3 layers \u00d7 1 MB = <strong>3 MB</strong>", "?cluster=")


def test_the_curve_of_a_profile_tells_what_a_token_takes(cluster: Cluster) -> None:
    """3 MB of weights and 2 layers' worth of room lost: 1 MB / 1000 tokens a layer."""
    view = Profile.unscoped.select_related("model").get(name="big")
    assert view.kv_bytes_per_token_layer == pytest.approx(1000)
    assert view.kv_room_bytes == pytest.approx(2e6)
    assert view.weights_bytes + (view.kv_room_bytes or 0) + view.left_bytes == pytest.approx(8e6)


def test_one_entry_alone_tells_nothing_of_a_token(cluster: Cluster) -> None:
    row = Profile.unscoped.select_related("model").get(name="big")
    row.max_layers, row.tokens_per_s, row.kv_capacity_token_layers = 1, [4.0], [9.0]
    assert row.kv_bytes_per_token_layer is None


def test_every_incumbent_has_a_page(browser: Client, cluster: Cluster, user: object) -> None:
    options = PlanOptions(objective="flow", time_limit_s=1)
    run = begun(cluster, user, options)
    found_for(run, claimed(run))
    page = html(browser, "plan-run", run.pk)
    shown = browser.get(reverse("plan-run", args=[run.pk])).context["incumbents"]
    flows = [row.flow_tokens_per_s for row in shown]
    assert flows == sorted(set(flows), reverse=True)
    for row in shown:
        url = reverse("incumbent", args=[run.pk, row.pk])
        assert url in page
        flow_tokens_per_s = browser.get(url).context["flow_tokens_per_s"]
        assert flow_tokens_per_s == pytest.approx(row.flow_tokens_per_s)
    other = PlanRun.objects.create(
        cluster=cluster, model=run.model, problem=run.problem, options=run.options
    )
    lost = reverse("incumbent", args=[other.pk, Incumbent.unscoped.first().pk])  # type: ignore[union-attr]
    assert browser.get(lost).status_code == 404


def test_a_node_shows_its_changes_and_its_log_lines(browser: Client, cluster: Cluster) -> None:
    mini = Node.unscoped.get(name="mini")
    records.update(mini, region="moon")
    page = tight(html(browser, "node", cluster.pk, mini.pk))
    contains(page, "region: away \u2192 moon", "None: no deployment gives it layers.")
    log = html(browser, "changes", kind="node", row=str(mini.pk))
    contains(log, "mini", "moon")


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


def test_numbers_of_a_silent_coordinator_are_hidden(joined: FakeCluster, browser: Client) -> None:
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


def test_charts_and_alerts_are_live(joined: FakeCluster, cluster: Cluster, browser: Client) -> None:
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
