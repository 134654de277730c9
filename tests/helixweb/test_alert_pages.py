"""Alerts in the browser and over REST, when they fire, when they are over, and where beat looks."""

import re
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient
from test_alerts import Site, firing

from helixweb.alerting import services
from helixweb.alerting.kinds import Kind
from helixweb.alerting.models import Alert, AlertRule, Channel, Silence
from helixweb.alerting.readings import read, with_readings
from helixweb.alerting.states import FLAPS_WITHIN, begin, follow, resolve_after
from helixweb.alerting.templatetags.sentences import in_unit
from helixweb.common.models import ApiKey
from helixweb.deployment.models import Deployment, Status
from helixweb.inventory.models import Change, Cluster, Coordinator, JoinToken, Node
from helixweb.inventory.services import records
from helixweb.monitoring.moment import Moment
from tests.helixweb.looking import answered, contains, denied, fresh, shows, statements

HOOK = {"way": "webhook", "url": "https://hooks.example/x"}


@pytest.fixture
def alert(site: Site) -> Alert:
    return firing(site)


def test_the_bell_counts_until_acknowledgement(alert: Alert, browser: Client, user: Any) -> None:
    page = browser.get("/alerts/").content.decode()
    contains(page, "95 of 100 first tokens come within 9 s.", f"cluster:{alert.cluster_id}")
    assert "1 alert fires" in browser.get("/alerts/bell").content.decode()
    answer = browser.post(f"/alerts/{alert.pk}/acknowledge", {"comment": "on it"}, follow=True)
    assert f"{user.username} looks after it." in answer.content.decode()
    assert "No alert fires" in browser.get("/alerts/bell").content.decode()
    assert Change.unscoped.filter(kind="alert", text="acknowledged").exists()


def test_a_part_that_is_fetched_leaves_notes_to_the_page(alert: Alert, browser: Client) -> None:
    browser.post(f"/alerts/{alert.pk}/acknowledge")
    assert "Noted" not in browser.get("/alerts/", headers={"HX-Request": "true"}).content.decode()
    assert "Noted that you look after" in browser.get("/alerts/").content.decode()


def test_resolved_alerts_show_when_asked_for(alert: Alert, browser: Client, api: APIClient) -> None:
    Alert.unscoped.update(state="resolved", resolved_at=timezone.now())
    assert "No alert fires." in browser.get("/alerts/").content.decode()
    page = browser.get("/alerts/", {"state": "resolved", "cluster": alert.cluster_id})
    assert "TTFT" in page.content.decode()
    assert browser.get("/alerts/", {"state": "bogus", "page": "x"}).status_code == 200
    denied(api.post(f"/api/v1/alerts/{alert.pk}/acknowledge/", {}), 409, "is over")


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [
        (14 * 86_400, "s", "14 d"), (3_600, "s", "1 h"), (300, "s", "5 min"), (90, "s", "90 s"),
        (0, "s", "0 s"), (0.4, "s", "0.4 s"), (0.95, "ratio", "95 %"),
        (12_000, "requests", "12,000 requests"), (0.5, "", "—"),
    ],
)  # fmt: skip
def test_a_threshold_is_said_as_people_say_it(value: float, unit: str, words: str) -> None:
    assert in_unit(value, unit) == words


def test_a_channel_shows_its_secret_once_and_in_no_log(cluster: Cluster, browser: Client) -> None:
    form = {"name": "ops", **HOOK, "least_severity": "warning", "enabled": "on"}
    shows(browser.post(f"/alerts/channels/new/{cluster.pk}", form), "whsec_")
    channel = Channel.unscoped.get()
    assert "whsec_" not in browser.get("/alerts/channels/").content.decode()
    assert "whsec_" in browser.post(f"/alerts/channels/{channel.pk}/secret").content.decode()
    told = str(list(Change.unscoped.values("before", "after", "text")))
    assert channel.sealed_secret not in told
    assert "hooks.example" not in told  # such URLs often hold a key themselves


def test_targets_of_alerts_are_logged_without_secrets(cluster: Cluster, api: APIClient) -> None:
    made = api.post("/api/v1/alert-channels/", {"cluster": cluster.pk, "name": "ops", **HOOK})
    channel = made.json()["id"]
    where = f"/api/v1/alert-channels/{channel}/"
    assert api.patch(where, {"url": "https://hooks.example/key-2"}).status_code == 200
    line = Change.unscoped.filter(kind="channel", row_id=channel).first()
    assert line.before.keys() == line.after.keys() == {"url"}
    assert line.before != line.after
    rule = {"cluster": cluster.pk, "name": "r", "kind": "node_lost", "threshold": 9, "clears_at": 1}
    rules = answered(api.post("/api/v1/alert-rules/", rule), 201)
    where = f"/api/v1/alert-rules/{rules.json()['id']}/"
    assert api.patch(where, {"channels": [channel]}).status_code == 200
    line = Change.unscoped.filter(kind="alertrule").first()
    assert (line.before, line.after) == ({"channels": []}, {"channels": ["ops"]})
    count = Change.unscoped.count()
    assert api.patch(where, {"channels": [channel]}).status_code == 200
    assert Change.unscoped.exclude(kind="request").count() == count
    assert "hooks.example" not in str(list(Change.unscoped.values("before", "after", "text")))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"url": ""}, "needs the URL"),
        ({"url": "ftp://x"}, "give http:// or https://"),
        ({"way": "email", "url": ""}, "at least one address"),
        ({"way": "email", "url": "", "addresses": "nobody"}, "is no e-mail address"),
    ],
)
def test_a_channel_that_could_tell_nobody_is_refused(
    cluster: Cluster, browser: Client, api: APIClient, given: dict[str, str], words: str
) -> None:
    form = {"name": "ops", **HOOK, "least_severity": "warning", **given}
    page = answered(browser.post(f"/alerts/channels/new/{cluster.pk}", form), 422)
    assert words in page.content.decode().replace("&#x27;", "'")
    body: dict[str, Any] = {**form, "cluster": cluster.pk}
    if "addresses" in body:
        body["addresses"] = [body["addresses"]]
    answer = answered(api.post("/api/v1/alert-channels/", body), 400)
    assert words in str(answer.json())
    assert not Channel.unscoped.exists()


def test_silences_are_made_and_ended(site: Site, alert: Alert, browser: Client) -> None:
    pk = alert.cluster_id
    filled = browser.get(f"/alerts/silences/new/{pk}?rule={alert.rule_id}&subject=TTFT")
    assert 'value="TTFT"' in filled.content.decode()
    browser.post(f"/alerts/silences/new/{pk}", {"subject": "TTFT", "hours": "8", "comment": "w"})
    row = Silence.unscoped.get()
    assert row.ends_at - row.starts_at == timedelta(hours=8)
    assert "TTFT" in browser.get("/alerts/silences/").content.decode()
    site.later(1)
    browser.post(f"/alerts/silences/{row.pk}/end")
    assert fresh(row).ends_at <= timezone.now()


def test_programs_look_after_alerts_and_have_channels_tested(alert: Alert, api: APIClient) -> None:
    (found,) = api.get("/api/v1/alerts/", {"state": "firing"}).json()["results"]
    assert (found["kind"], found["rule_name"]) == ("ttft_p95", "ttft p95")
    assert "9 s" in found["text"]
    answer = api.post(f"/api/v1/alerts/{alert.pk}/acknowledge/", {"comment": "on it"})
    assert answer.json()["acknowledged_by"] == "ada"
    made = api.post("/api/v1/alert-channels/", {"cluster": alert.cluster_id, "name": "ops", **HOOK})
    assert made.status_code == 201, made.content
    assert made.json()["secret"].startswith("whsec_")
    channel = made.json()["id"]
    again = api.get(f"/api/v1/alert-channels/{channel}/")
    assert again.json()["secret"] is None
    changed = api.patch(
        f"/api/v1/alert-rules/{alert.rule_id}/", {"channels": [channel], "threshold": 6}
    )
    assert changed.json()["channels"] == [channel], changed.content
    tested = api.post(f"/api/v1/alert-channels/{channel}/test/")
    assert (tested.status_code, tested.json()["occasion"]) == (202, "test")
    number = tested.json()["id"]
    assert api.post(f"/api/v1/alert-deliveries/{number}/again/").status_code == 409
    secret = api.post(f"/api/v1/alert-channels/{channel}/new-secret/").json()["secret"]
    assert secret.startswith("whsec_")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"clears_at": 9}, "past its threshold"),
        ({"threshold": -1}, "number from 0"),
        ({"for_s": 1e9}, "seconds"),
        ({"kind": "weather"}, "not a valid choice"),
        ({"colour": "red"}, "Unknown field"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused_over_rest(
    cluster: Cluster, api: APIClient, change: dict[str, Any], words: str
) -> None:
    rule = {
        "cluster": cluster.pk, "name": "r", "kind": "ttft_p95", "threshold": 5, "clears_at": 4,
        **change,
    }  # fmt: skip
    answer = answered(api.post("/api/v1/alert-rules/", rule), 400)
    assert words in str(answer.json())


def test_a_channel_of_another_cluster_cannot_be_told(api: APIClient, alert: Alert) -> None:
    other = Cluster.objects.create(name="other")
    channel = records.create(Channel, cluster=other, name="theirs", **HOOK)
    answer = api.patch(f"/api/v1/alert-rules/{alert.rule_id}/", {"channels": [channel.pk]})
    assert answer.status_code == 400
    assert "another cluster" in str(answer.json())


START = datetime(2026, 1, 1, tzinfo=UTC)


def rule(**changes: Any) -> AlertRule:
    """Bad above 10, good at 8."""
    usual = {"kind": Kind.TTFT, "threshold": 10, "clears_at": 8, "for_s": 30, "resolve_s": 60}
    return AlertRule(**{**usual, **changes})


class Watch:
    """One subject whose readings come every ten seconds; notes its alerts."""

    def __init__(self, **changes: Any) -> None:
        self.rule = rule(**changes)
        self.now_s = 0
        self.open: Alert | None = None
        self.last: Alert | None = None
        self.told: list[tuple[str, float]] = []

    def read(self, *values: float | None) -> "Watch":
        for value in values:
            self._one(value, START + timedelta(seconds=self.now_s))
            self.now_s += 10
        return self

    def _one(self, value: float | None, now: datetime) -> None:
        alert, before = self.open or Alert(rule=self.rule), self.open and self.open.state
        if self.open is not None:
            is_kept = follow(alert, value, now=now)
        else:
            is_kept = value is not None and begin(alert, value, before=self.last, now=now)
        self.open = alert if is_kept else None
        if self.open is not None and alert.state not in ("pending", before):
            self.told.append((alert.state, self.now_s))
        if self.open is not None and alert.state == "resolved":
            self.last, self.open = alert, None


@pytest.mark.parametrize(
    ("changes", "readings", "told"),
    [
        ({}, [*[11] * 5, *[1] * 8], [("firing", 30), ("resolved", 110)]),
        ({}, [11, 11, 1, 11, 11, 1], []),
        ({}, [11, 9, 9, 9], [("firing", 30)]),
        ({}, [*[11] * 4, *[9, 11] * 20, *[9] * 30], [("firing", 30)]),
        ({}, [*[11] * 4, *[9, 11] * 20, *[8] * 7], [("firing", 30), ("resolved", 500)]),
        ({}, [*[11] * 4, *[None] * 7], [("firing", 30), ("resolved", 100)]),
        ({"for_s": 0, "resolve_s": 0}, [11, 1], [("firing", 0), ("resolved", 10)]),
    ],
    ids=["for long enough", "spikes", "pending between the marks", "between the marks", "good",
         "not there any more", "without delays"],
)  # fmt: skip
def test_it_fires_and_ends_when_it_was_bad_and_good_for_long_enough(
    changes: dict[str, Any], readings: list[float | None], told: list[tuple[str, float]]
) -> None:
    assert Watch(**changes).read(*readings).told == told


def test_what_flaps_must_be_good_for_longer_each_time() -> None:
    """Bad for a minute, good for two: a thousand minutes of it are a handful of notices."""
    flapping = Watch(for_s=0)
    flapping.read(*([11] * 6 + [1] * 12) * 333)
    assert len(flapping.told) <= 5
    calm = Watch(for_s=0)
    calm.read(*([11] * 6 + [1] * 200) * 5)
    assert len(calm.told) == 10
    assert all(told[0] == "firing" for told in calm.told[::2])


def test_who_was_calm_for_long_does_not_flap() -> None:
    over, soon, later = Alert(resolved_at=START, flaps=4), Alert(rule=rule()), Alert(rule=rule())
    assert begin(soon, 11, before=over, now=START + FLAPS_WITHIN)
    after = START + FLAPS_WITHIN + timedelta(seconds=1)
    assert begin(later, 11, before=over, now=after)
    assert (soon.flaps, later.flaps) == (5, 0)
    assert resolve_after(soon.flaps, rule()) == timedelta(seconds=1800)
    assert resolve_after(later.flaps, rule()) == timedelta(seconds=60)


@pytest.mark.parametrize(("value", "fires"), [(9, True), (10, False), (11, False)])
def test_what_runs_out_is_bad_below_its_threshold(value: float, fires: bool) -> None:
    alert = Alert(rule=rule(kind=Kind.KEY_EXPIRES, clears_at=10, for_s=0))
    assert begin(alert, value, before=None, now=START) is fires


def test_a_cluster_is_looked_at_when_a_rule_may_have_something_to_say(
    site: Site, user: Any, plan: Any, settings: Any
) -> None:
    """And once without, when it gets its rules."""
    assert services.ids_to_look_at(site.now) == [site.cluster.pk]
    site.look()
    JoinToken.unscoped.all().delete()
    assert services.ids_to_look_at(site.now) == []
    later, own = site.now + timedelta(days=1), {"cluster": site.cluster}
    rule = AlertRule.unscoped.filter(cluster=site.cluster).first()
    alert = {**own, "rule": rule, "subject": "x", "severity": "warning", "since": site.now}
    for make in (
        lambda: Coordinator.objects.create(
            **own, name="front", uuid=uuid.uuid4(), last_seen_at=site.now
        ),
        lambda: Node.objects.create(**own, name="new", uuid=uuid.uuid4(), last_seen_at=site.now),
        lambda: Deployment.objects.create(
            **own,
            plan=plan,
            model=plan.model,
            generation=1,
            page_tokens=16,
            status=Status.READY,
            max_batch_tokens=64,
            kv_high_water=0.9,
            max_queued_requests=8,
            max_context_tokens=64,
            serving_plan={},
            created_at=site.now,
            changed_at=site.now,
        ),
        lambda: site.sample(ttft_p95_s=1.0),
        lambda: ApiKey.objects.create(**own, user=user, key="a", secret_hash="a", expires_at=later),
        lambda: ApiKey.objects.create(user=user, key="b", secret_hash="b", expires_at=later),
        lambda: JoinToken.objects.create(
            **own, role="node", token_hash="x", expires_at=later, created_by=user
        ),
        lambda: Alert.objects.create(**alert, state="pending"),
        lambda: site.channel(alive_every_s=60),
    ):
        row: Any = make()
        assert services.ids_to_look_at(site.now) == [site.cluster.pk], row
        row.delete()
        assert services.ids_to_look_at(site.now) == [], row
    settings.HELIX_TLS_CERTIFICATE = "/etc/helix.pem"
    assert services.ids_to_look_at(site.now) == [site.cluster.pk]


def test_no_kind_of_rule_reads_what_is_not_looked_for_beforehand(site: Site) -> None:
    """One that does needs its table in `with_readings`, or it is never evaluated."""

    def tables(act: Callable[[], Any]) -> set[str]:
        return set(re.findall(r'FROM "(\w+)"', " ".join(statements(act))))

    def read_every_kind() -> None:
        assert not any(read(kind, Moment(site.cluster, site.now)) for kind in Kind)

    assert tables(read_every_kind) <= tables(lambda: list(with_readings(site.now)))
