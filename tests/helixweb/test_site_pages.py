"""Settings, profiles, incumbents and the demo cluster in the browser."""

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from helixweb.inventory.models import Cluster, JoinToken, Node, Origin, Profile
from helixweb.inventory.services import joining, problems, records
from helixweb.planning.models import Incumbent, Plan, PlanRun, Simulation
from helixweb.planning.services import fit as planning_fit
from planner.plan_options import PlanOptions
from tests.helixweb.looking import answered, contains, fresh, tight
from tests.helixweb.searching import begun, claimed, found_for


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


def test_every_better_placement_of_a_search_can_be_looked_at(
    browser: Client, cluster: Cluster, user: object
) -> None:
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
