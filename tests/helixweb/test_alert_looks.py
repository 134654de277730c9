"""Which clusters beat has looked at: those where a rule may have something to say."""

import re
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from test_alerts import Site

from helixweb.alerting import services
from helixweb.alerting.kinds import Kind
from helixweb.alerting.models import Alert, AlertRule
from helixweb.alerting.readings import read, with_readings
from helixweb.common.models import ApiKey
from helixweb.deployment.models import Deployment, Status
from helixweb.inventory.models import Coordinator, JoinToken, Node
from helixweb.monitoring.moment import Moment
from tests.helixweb.looking import statements


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
