"""Rules over a cluster's real numbers, silences, and that every turn is told once."""

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import scrapes
from django.core import mail
from django.utils import timezone
from test_webhook_targets import LOOPBACK, Receiver, receiver

from docs.examples.webhook_receiver import came_from_the_site
from helixweb.alerting import deliveries, sending, services, tasks
from helixweb.alerting.kinds import DEFAULTS, Kind
from helixweb.alerting.models import Alert, AlertRule, Channel, Delivery, Silence
from helixweb.common.api_keys import create_api_key
from helixweb.common.jobs import LostLease
from helixweb.common.models import Event
from helixweb.inventory.models import Change, Cluster, Node
from helixweb.inventory.services import records
from helixweb.monitoring.models import MetricSample
from tests.certificate import write_certificate
from tests.helixweb.looking import fresh, statements
from tests.helixweb.metric_samples import bare_sample


class Site:
    """A cluster, and a clock that tests turn."""

    def __init__(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster = cluster
        self.now = timezone.now()
        monkeypatch.setattr(timezone, "now", lambda: self.now)

    def later(self, seconds: float) -> "Site":
        self.now += timedelta(seconds=seconds)
        return self

    def look(self) -> int:
        return services.evaluate(self.cluster, now=self.now)

    def rule(self, kind: Kind, **changes: Any) -> AlertRule:
        """The only one; the others are switched off."""
        self.look()
        AlertRule.unscoped.filter(cluster=self.cluster).exclude(kind=kind).update(enabled=False)
        AlertRule.unscoped.filter(cluster=self.cluster, kind=kind).update(**changes)
        return AlertRule.unscoped.get(cluster=self.cluster, kind=kind)

    def sample(self, **numbers: Any) -> MetricSample:
        MetricSample.unscoped.filter(cluster=self.cluster).delete()
        made = bare_sample(self.cluster, self.now, output=1.0, **numbers)
        made.save()
        return made

    def channel(self, **fields: Any) -> Channel:
        given = {"name": "ops", "way": "webhook", "url": "http://hooks.example:1/", **fields}
        return records.create(Channel, cluster=self.cluster, **given)

    def deliver(self) -> list[Delivery]:
        """All that is due."""
        due = deliveries.due_ids(self.now)
        for delivery_id in due:
            sending.send(delivery_id)
        return list(Delivery.unscoped.filter(pk__in=due))


@pytest.fixture
def hook(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """A receiver on this machine that hooks.example is the name of."""
    settings.HELIX_WEBHOOK_NETWORKS = LOOPBACK
    with receiver() as server:
        monkeypatch.setattr(
            "helixweb.alerting.sending.post",
            lambda url, **more: sending_post(
                f"http://hooks.example:{server.port}/", resolve=lambda *_: ["127.0.0.1"], **more
            ),
        )
        yield server


sending_post = sending.post


def test_a_cluster_begins_with_one_rule_of_each_kind_and_deleted_ones_stay_away(site: Site) -> None:
    site.look()
    assert AlertRule.unscoped.filter(cluster=site.cluster).count() == len(DEFAULTS)
    AlertRule.unscoped.filter(kind=Kind.ITL).delete()
    site.later(5).look()
    assert not AlertRule.unscoped.filter(kind=Kind.ITL).exists()


def test_more_rules_cost_no_more_queries(site: Site, django_assert_max_num_queries: Any) -> None:
    """All clusters are looked at every few seconds."""
    site.look()
    before = statements(site.later(5).look)
    usual = AlertRule.unscoped.get(cluster=site.cluster, kind=Kind.TTFT)
    for number in range(10):
        usual.pk, usual.name = None, f"another {number}"
        usual.save()
    with django_assert_max_num_queries(len(before)):
        site.later(5).look()


def test_a_node_that_falls_silent_is_told_of_as_is_its_return(site: Site, user: Any) -> None:
    joined, _ = scrapes.serve(site.cluster, user)
    site.rule(Kind.NODE_LOST)
    assert site.look() == 0
    Node.unscoped.filter(cluster=site.cluster).update(last_seen_at=site.now + timedelta(hours=1))
    joined.silence("tower")
    assert site.later(1).look() == 1
    alert = Alert.unscoped.get()
    assert (alert.state, alert.subject, alert.severity) == ("firing", "tower", "critical")
    assert "has not been heard of for 1 min." in alert.said["text"]
    assert site.later(60).look() == 0
    Node.unscoped.filter(name="tower").update(last_seen_at=site.now)
    assert site.look() == 0  # it must stay for a while
    assert fresh(alert).state == "firing"
    assert "has not been heard of for 2 min." in alert.said["text"], "not for 0 s"
    assert alert.value > DEFAULTS[Kind.NODE_LOST].threshold
    Node.unscoped.filter(name="tower").update(last_seen_at=site.now + timedelta(minutes=9))
    assert site.later(21).look() == 1
    assert fresh(alert).state == "resolved"
    events = Event.objects.filter(type="alert", topic=f"cluster:{site.cluster.pk}")
    assert [event.data["state"] for event in events.order_by("pk")] == ["firing", "resolved"]


@pytest.mark.parametrize(
    ("kind", "numbers", "subject"),
    [
        (Kind.TTFT, {"ttft_p95_s": 9.0}, "TTFT"),
        (Kind.ITL, {"itl_p95_s": 2.0}, "inter-token latency"),
        (Kind.WAITING, {"waiting": 3}, "requests"),
        (Kind.KV_PROMISED, {"nodes": {"tower": {"kv_promised_ratio": 0.99}}}, "tower"),
    ],
)
def test_numbers_of_the_monitor_past_their_mark_fire(
    site: Site, kind: Kind, numbers: dict[str, Any], subject: str
) -> None:
    site.rule(kind, for_s=10)
    site.sample(**numbers)
    assert site.look() == 0
    site.later(10).sample(**numbers)
    assert site.look() == 1
    assert Alert.unscoped.get().subject == subject


def test_simulated_and_old_numbers_fire_nothing(site: Site, plan: Any) -> None:
    site.rule(Kind.TTFT, for_s=0)
    site.sample(ttft_p95_s=9.0, simulated_plan=plan)
    assert site.look() == 0
    site.sample(ttft_p95_s=9.0)
    assert site.later(6).look() == 0


def test_a_slow_link_a_bad_deployment_and_a_stale_plan_fire(site: Site, user: Any) -> None:
    _, deployment = scrapes.serve(site.cluster, user)
    site.rule(Kind.LINK_SLOW, for_s=0)
    assert site.look() >= 1
    link = Alert.unscoped.first()
    assert "→" in link.subject
    assert link.value is not None
    assert link.value > 0.9
    AlertRule.unscoped.update(enabled=True, for_s=0)
    type(deployment).unscoped.update(status="degraded", message="tower is lost")
    node = site.cluster.nodes.get(name="mini")
    site.later(1)
    records.update(node, region="elsewhere")
    site.later(4000).look()
    found = {alert.rule.kind: alert for alert in Alert.unscoped.filter(state="firing")}
    assert "tower is lost" in found[Kind.DEPLOYMENT_FAILED].said["text"]
    assert "was made before 1 changes" in found[Kind.PLAN_STALE].said["text"]


def test_keys_and_certificates_that_run_out_fire(
    site: Site, user: Any, settings: Any, tmp_path: Any
) -> None:
    soon = site.now + timedelta(days=3)
    create_api_key(name="chat", user=user, scopes=["serve"], expires_at=soon)
    site.rule(Kind.KEY_EXPIRES)
    site.look()
    assert "runs out in 3.0 days" in Alert.unscoped.get().said["text"]
    certificate = tmp_path / "site.pem"
    write_certificate(certificate, tmp_path / "key.pem", host="helix.example")
    settings.HELIX_TLS_CERTIFICATE = str(certificate)
    site.rule(Kind.CERTIFICATE_EXPIRES, enabled=True)
    site.look()
    assert Alert.unscoped.filter(subject="certificate of the site", state="firing").exists()
    certificate.write_text("no certificate")
    site.later(5).look()  # said in the log; what was known stays
    assert Alert.unscoped.filter(subject="certificate of the site", state="firing").exists()


def firing(site: Site) -> Alert:
    """TTFT is above its mark."""
    site.rule(Kind.TTFT, for_s=0, resolve_s=0)
    site.sample(ttft_p95_s=9.0)
    site.look()
    return Alert.unscoped.get(state="firing")


def calm(site: Site) -> None:
    site.later(1).sample(ttft_p95_s=0.1)
    site.look()


def test_a_turn_is_posted_signed_after_it_was_grouped(site: Site, hook: Receiver) -> None:
    channel = site.channel(url="https://hooks.example/x")
    alert = firing(site)
    assert site.deliver() == []  # others may turn as well
    calm(site)
    (sent,) = site.later(5).deliver()
    assert (sent.status, sent.attempts.get().code) == ("succeeded", 204)
    ((_, headers, body),) = hook.asked
    told = json.loads(body)
    assert [(each["id"], each["turn"], each["state"]) for each in told["alerts"]] == [
        (alert.pk, 1, "firing"),
        (alert.pk, 2, "resolved"),
    ]
    assert told["delivery"] == headers["X-Helix-Delivery"] == str(sent.number)
    secret, number = channel.secret, str(sent.number)
    assert came_from_the_site(secret, headers["X-Helix-Signature"], number, body)
    assert secret not in Channel.unscoped.get(pk=channel.pk).sealed_secret


def test_failures_are_retried_later_and_then_end_the_channel(site: Site, hook: Receiver) -> None:
    channel = site.channel()
    hook.answer = (500, {}, b"")
    for _ in range(deliveries.MOST_FAILURES):
        deliveries.test_channel(channel, now=site.now)
        while due := Delivery.unscoped.filter(status="queued").first():
            site.now = due.next_try_at
            site.deliver()
        site.later(1)
    failed = list(Delivery.unscoped.all())
    assert {each.status for each in failed} == {"failed"}
    assert {each.attempt for each in failed} == {deliveries.MOST_ATTEMPTS}
    waits = [deliveries.wait_s(attempt) for attempt in range(1, 12)]
    assert waits[:3] == [10, 20, 40]
    assert max(waits) == 3600
    numbers = {headers["X-Helix-Delivery"] for _, headers, _ in hook.asked}
    assert len(hook.asked) == deliveries.MOST_ATTEMPTS * len(numbers)
    assert not fresh(channel).enabled
    assert "5 deliveries in a row failed; the last: the receiver answered 500" in (
        channel.disabled_why
    )
    firing(site)
    assert not Delivery.unscoped.filter(occasion="alerts").exists()


def test_a_receiver_that_is_gone_is_believed_at_once(site: Site, hook: Receiver) -> None:
    channel = site.channel()
    hook.answer = (410, {}, b"")
    deliveries.test_channel(channel, now=site.now)
    site.deliver()
    assert (fresh(channel).enabled, Delivery.unscoped.get().attempt) == (False, 1)
    line = Change.unscoped.filter(kind="channel", row_id=channel.pk).first()
    assert (line.actor_kind, line.before, line.after) == (
        "site",
        {"enabled": True},
        {"enabled": False},
    )


def test_what_leads_to_a_private_address_is_not_sent_and_not_tried_again(site: Site) -> None:
    channel = site.channel(url="http://127.0.0.1:1/")
    deliveries.test_channel(channel, now=site.now)
    (sent,) = site.deliver()
    assert (sent.status, sent.attempt) == ("failed", 1)
    assert "not a public address" in sent.error


def test_a_worker_that_dies_while_sending_is_replaced_for_good(site: Site, hook: Receiver) -> None:
    site.channel()
    firing(site)
    site.later(5)
    (delivery_id,) = deliveries.due_ids(site.now)
    dead = deliveries.claim(delivery_id, now=site.now)
    assert dead == 1
    sending.send(delivery_id)  # the message came twice
    assert deliveries.due_ids(site.now) == []
    assert hook.asked == []
    site.now += deliveries.LEASE + timedelta(seconds=1)
    (sent,) = site.deliver()
    assert (sent.status, sent.attempt, len(hook.asked)) == ("succeeded", 2, 1)
    with pytest.raises(LostLease):
        deliveries.record(sent, attempt=1, at=site.now, now=site.now, code=500, error="")
    # Whether the first one arrived nobody knows; that it was lost is told.
    told = [(each.attempt, each.code, each.error) for each in sent.attempts.all()]
    assert told == [(1, None, deliveries.LOST), (2, 204, "")]


def test_two_workers_that_look_at_once_tell_of_a_turn_once(site: Site, hook: Receiver) -> None:
    site.channel()
    firing(site)
    before = site.now
    assert site.look() == 0
    assert services.evaluate(site.cluster, now=before - timedelta(seconds=1)) == 0
    assert Delivery.unscoped.count() == 1
    assert len(Delivery.unscoped.get().told) == 1


def test_a_kill_between_a_turn_and_what_is_told_of_it_leaves_neither(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.channel()
    site.rule(Kind.TTFT, for_s=0)
    site.sample(ttft_p95_s=9.0)

    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        dying.setattr(deliveries, "tell", killed)
        with pytest.raises(KeyboardInterrupt):
            site.look()
    assert not Alert.unscoped.exists()
    site.look()
    assert Delivery.unscoped.get().told[0]["state"] == "firing"


def test_a_silence_keeps_an_alert_from_being_told_and_its_end_too(site: Site) -> None:
    site.channel()
    Silence.objects.create(
        cluster=site.cluster,
        subject="TTFT",
        starts_at=site.now - timedelta(hours=1),
        ends_at=site.now + timedelta(minutes=1),
    )
    assert firing(site).silenced
    site.later(120)
    calm(site)
    assert Alert.unscoped.get().state == "resolved"
    assert not Delivery.unscoped.exists()
    site.later(1)
    firing(site)
    assert Delivery.unscoped.count() == 1


def test_channels_get_what_is_grave_enough_and_what_their_rules_say(site: Site) -> None:
    for name, fields in {
        "all": {},
        "grave": {"least_severity": "critical"},
        "ends": {"send_resolved": False},
        "off": {"enabled": False},
    }.items():
        site.channel(name=name, **fields)
    firing(site)
    calm(site)
    turns = {
        each.channel.name: [one["turn"] for one in each.told] for each in Delivery.unscoped.all()
    }
    assert turns == {"all": [1, 2], "ends": [1]}
    AlertRule.unscoped.get(kind=Kind.TTFT).channels.add(Channel.unscoped.get(name="all"))
    Delivery.unscoped.all().delete()
    site.later(1)
    firing(site)
    assert [each.channel.name for each in Delivery.unscoped.all()] == ["all"]


def test_a_channel_hears_that_somebody_looks_even_if_nothing_fires(site: Site) -> None:
    site.channel(alive_every_s=60)
    for _ in range(13):
        site.look()
        site.later(10)
    assert Delivery.unscoped.filter(occasion="alive").count() == 3


def test_a_mail_says_what_fires_or_which_setting_is_missing(site: Site, settings: Any) -> None:
    settings.EMAIL_HOST = ""
    channel = site.channel(way="email", url="", addresses=["ops@example.org"])
    deliveries.test_channel(channel, now=site.now)
    (sent,) = site.deliver()
    assert (sent.status, mail.outbox) == ("failed", [])
    assert "EMAIL_HOST" in sent.error
    settings.EMAIL_HOST = "mail.example"
    firing(site)
    *_, sent = site.later(5).deliver()
    assert sent.status == "succeeded"
    (letter,) = mail.outbox
    assert letter.subject == f"[HelixWeb] {site.cluster.name}: 1 firing"
    assert letter.to == ["ops@example.org"]
    assert "95 of 100 first tokens come within 9 s." in letter.body


def test_a_secret_that_cannot_be_read_any_more_says_so(site: Site, settings: Any) -> None:
    channel = site.channel()
    settings.SECRET_KEY = "another"
    deliveries.test_channel(channel, now=site.now)
    (sent,) = site.deliver()
    assert "make a new secret" in sent.error


def test_beat_looks_delivers_and_forgets(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    monkeypatch.setattr(
        tasks.send_delivery, "apply_async", lambda kwargs, **_: sent.append(kwargs["delivery_id"])
    )
    monkeypatch.setattr(
        tasks.evaluate_cluster,
        "apply_async",
        lambda kwargs, **_: tasks.evaluate_cluster(**kwargs),
    )
    channel = site.channel()
    made = deliveries.test_channel(channel, now=site.now)
    tasks.tend_alerts()
    assert sent == [made.pk]
    assert AlertRule.unscoped.filter(cluster=site.cluster).exists()
    tasks.evaluate_cluster(cluster_id=0)  # deleted meanwhile
    firing(site)
    calm(site)
    site.later(31 * 86_400)
    tasks.prune_alerts()
    assert not Alert.unscoped.exists()
