"""Current readings of a cluster for rules: one per subject, with a sentence about it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from cryptography import x509
from django.conf import settings
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils.translation import gettext_noop

from helixweb.alerting.kinds import Kind
from helixweb.charts.chart import age_text
from helixweb.common.models import ApiKey
from helixweb.common.sentences import sentence
from helixweb.deployment.links import working_links
from helixweb.deployment.models import SERVING, Deployment, Status
from helixweb.inventory.models import Cluster, Coordinator, JoinToken, Node
from helixweb.monitoring.history import SILENT_AFTER_S
from helixweb.monitoring.models import MetricSample
from helixweb.monitoring.moment import Moment
from helixweb.planning.newer_measurements import edits_after

_OF_NODES = gettext_noop("%(name)s has not been heard of for %(time)s.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """`value` in the kind's unit; `said` is a sentence as events have them."""

    subject: str
    value: float
    said: Mapping[str, Any]


Read = Callable[[Moment], Iterable[Reading]]


def read(kind: Kind, moment: Moment) -> dict[str, Reading]:
    """Readings by subject; missing values have none."""
    return {reading.subject: reading for reading in _READ[kind](moment)}


def with_readings(now: datetime) -> QuerySet[Cluster]:
    """Clusters of which some kind has a reading, or may have. All are asked about at once: most of
    them run nothing most of the time, and to read one by itself takes many queries."""
    expire = ApiKey.objects.filter(revoked_at=None, expires_at__gt=now)
    if settings.HELIX_TLS_CERTIFICATE or expire.filter(cluster=None).exists():
        return Cluster.unscoped.all()
    heard_of = Q(cluster=OuterRef("pk"), last_seen_at__isnull=False)
    told_since = int(now.timestamp() - SILENT_AFTER_S)
    tokens = JoinToken.unscoped.filter(used_at=None, expires_at__gt=now)
    samples = MetricSample.unscoped.filter(second__gte=told_since)
    return Cluster.unscoped.filter(
        Exists(Node.unscoped.filter(heard_of))
        | Exists(Coordinator.unscoped.filter(heard_of))
        | Exists(Deployment.unscoped.filter(cluster=OuterRef("pk"), status__in=SERVING))
        | Exists(samples.filter(cluster=OuterRef("pk")))
        | Exists(expire.filter(cluster=OuterRef("pk")))
        | Exists(tokens.filter(cluster=OuterRef("pk")))
    )


def _sample(moment: Moment) -> MetricSample | None:
    """The coordinator's latest sample; None if a simulator made it."""
    return None if moment.sample is None or moment.sample.simulated else moment.sample


def _deployment(moment: Moment) -> Deployment | None:
    """The deployment that the cluster must serve."""
    row = moment.deployment
    return row if row is not None and row.status in SERVING else None


def _silent(processes: Any, now: datetime) -> Iterator[Reading]:
    for row in processes.filter(joined_at__isnull=False, last_seen_at__isnull=False):
        seconds = max(0.0, (now - row.last_seen_at).total_seconds())
        said = sentence(_OF_NODES, name=row.name, time=age_text(seconds))
        yield Reading(subject=row.name, value=seconds, said=said)


def _failed_deployment(moment: Moment) -> Iterator[Reading]:
    deployment = _deployment(moment)
    if deployment is None:
        return
    is_bad = deployment.status in (Status.FAILED, Status.DEGRADED)
    said = sentence(
        gettext_noop("%(deployment)s is %(status)s: %(why)s"),
        deployment=str(deployment),
        status=deployment.status,
        why=deployment.message or "—",
    )
    yield Reading(subject=f"deployment {deployment.pk}", value=float(is_bad), said=said)


def _stale_plan(moment: Moment) -> Iterator[Reading]:
    deployment = _deployment(moment)
    if deployment is None:
        return
    changes = edits_after(deployment.plan)
    first = changes.order_by("at").first()
    seconds = 0.0 if first is None else (moment.now - first.at).total_seconds()
    said = sentence(
        gettext_noop("Plan %(plan)s was made before %(count)s changes of what it stands on."),
        plan=deployment.plan_id,
        count=0 if first is None else changes.count(),
    )
    yield Reading(subject=f"plan {deployment.plan_id}", value=seconds, said=said)


def _of_sample(subject: str, message: str, number: Callable[[MetricSample], float | None]) -> Read:
    def of_cluster(moment: Moment) -> Iterator[Reading]:
        sample = _sample(moment)
        value = None if sample is None else number(sample)
        if value is not None:
            yield Reading(
                subject=subject, value=value, said=sentence(message, value=f"{value:.3g}")
            )

    return of_cluster


def _promised_kv(moment: Moment) -> Iterator[Reading]:
    sample = _sample(moment)
    for name, numbers in sample.nodes.items() if sample is not None else ():
        ratio = numbers.get("kv_promised_ratio")
        if ratio is not None:
            said = sentence(
                gettext_noop("Requests may need %(ratio)s of the KV cache of %(name)s."),
                ratio=f"{ratio:.0%}",
                name=name,
            )
            yield Reading(subject=name, value=ratio, said=said)


def _slow_links(moment: Moment) -> Iterator[Reading]:
    deployment = _deployment(moment)
    if deployment is None:
        return
    for row in working_links(deployment, now=moment.now):
        measured, planned = row.stats.bandwidth_bytes_per_s, row.planned_bytes_per_s
        missing = 1.0 if row.stats.stalled else 0.0
        if row.slow and measured is not None and planned:
            missing = max(missing, 1.0 - measured / planned)
        said = sentence(
            gettext_noop("%(name)s does %(share)s less than its plan counts on."),
            name=row.name,
            share=f"{missing:.0%}",
        )
        yield Reading(subject=row.name, value=missing, said=said)


def _expiring_keys(moment: Moment) -> Iterator[Reading]:
    cluster, now = moment.cluster, moment.now
    keys = ApiKey.objects.filter(
        Q(cluster=cluster) | Q(cluster=None), revoked_at=None, expires_at__gt=now
    )
    for key in keys.order_by("pk"):
        yield _runs_out(f"API key {key.name} (hlx_{key.key})", key.expires_at, now)
    tokens = JoinToken.unscoped.filter(cluster=cluster, used_at=None, expires_at__gt=now)
    for token in tokens.order_by("pk"):
        if (token.expires_at - token.created_at).days >= 2:  # others are meant to be used at once
            yield _runs_out(f"join token {token.pk}", token.expires_at, now)


def _expiring_certificate(moment: Moment) -> Iterator[Reading]:
    """The certificate of this site, if HELIX_TLS_CERTIFICATE is set."""
    path = settings.HELIX_TLS_CERTIFICATE
    if not path:
        return
    certificate = x509.load_pem_x509_certificate(Path(path).read_bytes())
    yield _runs_out("certificate of the site", certificate.not_valid_after_utc, moment.now)


def _runs_out(subject: str, at: Any, now: datetime) -> Reading:
    seconds = (at - now).total_seconds()
    said = sentence(
        gettext_noop("%(subject)s runs out in %(days)s days."),
        subject=subject,
        days=f"{seconds / 86_400:.1f}",
    )
    return Reading(subject=subject, value=seconds, said=said)


_READ: dict[Kind, Read] = {
    Kind.NODE_LOST: lambda moment: _silent(moment.cluster.nodes, moment.now),
    Kind.COORDINATOR_LOST: lambda moment: _silent(moment.cluster.coordinators, moment.now),
    Kind.DEPLOYMENT_FAILED: _failed_deployment,
    Kind.PLAN_STALE: _stale_plan,
    Kind.TTFT: _of_sample(
        "TTFT",
        gettext_noop("95 of 100 first tokens come within %(value)s s."),
        lambda sample: sample.ttft_p95_s,
    ),
    Kind.ITL: _of_sample(
        "inter-token latency",
        gettext_noop("95 of 100 gaps between tokens are up to %(value)s s."),
        lambda sample: sample.itl_p95_s,
    ),
    Kind.WAITING: _of_sample(
        "requests",
        gettext_noop("%(value)s requests wait."),
        lambda sample: float(sample.waiting),
    ),
    Kind.KV_PROMISED: _promised_kv,
    Kind.LINK_SLOW: _slow_links,
    Kind.KEY_EXPIRES: _expiring_keys,
    Kind.CERTIFICATE_EXPIRES: _expiring_certificate,
}
