"""Alerts in the browser and over REST: the same rows, the same refusals."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from helixweb.alerting import services
from helixweb.alerting.kinds import Kind
from helixweb.alerting.models import Alert, AlertRule, Channel, Silence
from helixweb.alerting.templatetags.sentences import in_unit
from helixweb.inventory.models import Change, Cluster
from helixweb.inventory.services import records
from tests.helixweb.looking import answered, contains, denied, fresh, shows
from tests.helixweb.metric_samples import bare_sample

HOOK = {"way": "webhook", "url": "https://hooks.example/x"}


@pytest.fixture
def alert(cluster: Cluster) -> Alert:
    """TTFT is above its mark."""
    now = timezone.now()
    services.evaluate(cluster, now=now)
    AlertRule.unscoped.filter(kind=Kind.TTFT).update(for_s=0)
    bare_sample(cluster, now, output=1.0, ttft_p95_s=9.0).save()
    services.evaluate(cluster, now=now)
    return Alert.unscoped.get()


def test_the_page_shows_what_fires_and_the_bell_counts_it_until_somebody_looks_after_it(
    alert: Alert, browser: Client, user: Any
) -> None:
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


def test_what_is_over_is_shown_when_it_is_asked_for_and_cannot_be_looked_after(
    alert: Alert, browser: Client, api: APIClient
) -> None:
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


def test_where_alerts_go_is_told_in_the_change_log_without_what_is_secret(
    cluster: Cluster, api: APIClient
) -> None:
    hook = {"way": "webhook", "url": "https://hooks.example/key-1"}
    made = api.post("/api/v1/alert-channels/", {"cluster": cluster.pk, "name": "ops", **hook})
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


def test_silences_are_made_and_ended(alert: Alert, browser: Client) -> None:
    pk = alert.cluster_id
    filled = browser.get(f"/alerts/silences/new/{pk}?rule={alert.rule_id}&subject=TTFT")
    assert 'value="TTFT"' in filled.content.decode()
    browser.post(f"/alerts/silences/new/{pk}", {"subject": "TTFT", "hours": "8", "comment": "w"})
    row = Silence.unscoped.get()
    assert row.ends_at - row.starts_at == timedelta(hours=8)
    assert "TTFT" in browser.get("/alerts/silences/").content.decode()
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
    ends = (timezone.now() + timedelta(hours=1)).isoformat()
    silence = api.post(
        "/api/v1/alert-silences/",
        {"cluster": alert.cluster_id, "rule": alert.rule_id, "ends_at": ends},
    )
    assert silence.status_code == 201, silence.content


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
