"""Coordinators and agents, as far as the site heard of them and they answer."""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime

import httpx
from django.conf import settings
from django.urls import reverse

from helixweb.deployment.models import SERVING, Deployment, Status
from helixweb.inventory.models import Cluster, Coordinator, Node, NodeState
from helixweb.inventory.services.reachability import cut_pairs, parties, weights_cut_pairs
from helixweb.operations.doctor.findings import Finding, failed, note, ok, warning
from helixweb.operations.doctor.reach import clock_of
from helixweb.operations.doctor.services import skew
from helixweb.versions import product_version


def coordinators(now: datetime) -> Iterator[Finding]:
    """Check that coordinators are online and reachable at the URL that they reported."""
    rows = list(Coordinator.unscoped.select_related("cluster"))
    if not rows:
        remedy = (
            "`helixweb up` runs one, from its next start if its cluster was removed; or copy a "
            "join command from the page of a cluster"
        )
        yield note("coordinator", "none has joined", remedy)
    for row in rows:
        name = f"{row.name} of {row.cluster.name}"
        if row.state_at(now) is not NodeState.ONLINE:
            remedy = "start it again; see its log for why it ended or cannot reach the site"
            yield failed("coordinator", f"{name} was not heard of lately", remedy)
            continue
        try:
            skew_s = clock_of(f"{row.http_url}/health")
        except httpx.TransportError as error:
            yield warning(
                "coordinator",
                f"{name} is alive, but {row.http_url} does not answer here: {error}",
                "give it --public-url with an address that chat clients reach",
            )
            continue
        yield ok("coordinator", f"{name} answers at {row.http_url}")
        if skew_s is not None and abs(skew_s) > 1.0:  # the server's clock has whole seconds
            yield skew(name, skew_s)


def deployments() -> Iterator[Finding]:
    """Check that deployments serve that must."""
    rows = list(Deployment.unscoped.filter(status__in=SERVING).select_related("cluster"))
    for row in rows:
        name = f"{row.model_name} on {row.cluster.name}"
        if row.status == Status.READY:
            yield ok("deployment", f"{name} is ready")
            continue
        why = " ".join(row.message.split()) or "its nodes are loading"
        grade = note if row.status == Status.DEPLOYING and not row.message else failed
        remedy = f"see {settings.HELIX_URL}{reverse('deployment', args=[row.pk])}"
        yield grade("deployment", f"{name} is {row.status}: {why}", remedy)


def links(now: datetime) -> Iterator[Finding]:
    """Processes reach the ports of each other."""
    found = {row.pk: parties(row.pk, now=now) for row in Cluster.unscoped.all()}
    for pk, rows in found.items():
        remedy = f"see {settings.HELIX_URL}{reverse('cluster', args=[pk])}"
        for cut in cut_pairs(rows):
            yield failed("links", cut.remedy, remedy)
        for cut in weights_cut_pairs(rows):
            yield warning("links", cut.remedy, remedy)


def agents(now: datetime) -> Iterator[Finding]:
    """Heard of, and of this version."""
    rows = list(Node.unscoped.filter(joined_at__isnull=False).select_related("cluster"))
    lost = [row for row in rows if row.state_at(now) is NodeState.LOST]
    for row in lost:
        remedy = "start its agent again, or remove the node"
        said = f"{row.name} of {row.cluster.name} was not heard of lately"
        yield warning("agent", said, remedy)
    others = Counter(row.version or "unknown" for row in rows if row.version != product_version())
    for version, count in sorted(others.items()):
        yield warning(
            "agent",
            f"{count} run HelixWeb {version}, the site {product_version()}",
            f"install {product_version()} on them and restart their agents, one after the other",
        )
    if len(rows) > len(lost) and not others:
        yield ok("agent", f"{len(rows) - len(lost)} online, all of this version")
