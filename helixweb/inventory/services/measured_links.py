"""Writes what was measured of links. What a person says of them stays."""

import math
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from statistics import median

from helixweb.inventory.models import BY_PEOPLE, Cluster, Link, Origin, RegionLink
from helixweb.inventory.services.errors import NameTaken
from helixweb.inventory.services.link_orders import MeasuredDirection
from helixweb.inventory.services.records import create, update
from planner.domain.cluster import COORDINATOR

# What differs less from the measurement before is the same link.
SAME_RATIO = 0.1
SAME_LATENCY_S = 1e-3


def record_measured(cluster: Cluster, found: Iterable[MeasuredDirection]) -> None:
    """Both the links and, as their median, the links of their regions; none between regions whose
    link a person entered."""
    entered = set(
        RegionLink.objects.filter(cluster=cluster, origin__in=BY_PEOPLE).values_list(
            "source", "target"
        )
    )
    changed = {
        (one.source.region, one.target.region)
        for one in found
        if (one.source.region, one.target.region) not in entered
        and keep_measured_link(
            cluster,
            (one.source.name, one.target.name),
            bandwidth_bytes_per_s=one.bandwidth_bytes_per_s,
            is_floor=one.is_floor,
            latency_s=one.latency_s,
        )
    }
    if changed:
        _keep_medians(cluster, changed)


def keep_measured_link(
    cluster: Cluster,
    ends: tuple[str, str],
    *,
    bandwidth_bytes_per_s: float,
    latency_s: float,
    is_floor: bool = False,
) -> bool:
    """True if the numbers changed, which the change log and open pages then show; a measurement
    that confirms the one before only renews its time. A floor lowers nothing."""
    source, target = ends
    own = Link.objects.filter(cluster=cluster, source=source, target=target).first()
    if is_floor and own is not None and own.origin == Origin.MEASURED:
        bandwidth_bytes_per_s = max(bandwidth_bytes_per_s, own.bandwidth_bytes_per_s)
    return _keep(
        Link, own, cluster, source, target, rate=bandwidth_bytes_per_s, latency_s=latency_s
    )


def _keep_medians(cluster: Cluster, changed: set[tuple[str, str]]) -> None:
    region_of = dict(cluster.nodes.values_list("name", "region"))
    region_of[COORDINATOR] = cluster.coordinator_region
    rates: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    rows = Link.objects.filter(cluster=cluster, origin=Origin.MEASURED)
    for source, target, *numbers in rows.values_list(
        "source", "target", "bandwidth_bytes_per_s", "latency_s"
    ):
        if source in region_of and target in region_of:
            rates[region_of[source], region_of[target]].append((numbers[0], numbers[1]))
    for source, target in sorted(changed):
        bandwidths, latencies = zip(*rates[source, target], strict=True)
        own = RegionLink.objects.filter(cluster=cluster, source=source, target=target).first()
        _keep(
            RegionLink, own, cluster, source, target,
            rate=median(bandwidths), latency_s=median(latencies),
        )  # fmt: skip


def _keep(
    kind: type[Link] | type[RegionLink],
    own: Link | RegionLink | None,
    cluster: Cluster,
    source: str,
    target: str,
    *,
    rate: float,
    latency_s: float,
) -> bool:
    measured = {
        "bandwidth_bytes_per_s": rate,
        "latency_s": latency_s,
        "origin": Origin.MEASURED,
    }
    if own is None:
        with suppress(NameTaken):  # another process reported it at the same moment
            create(kind, cluster=cluster, source=source, target=target, **measured)
    elif own.origin in BY_PEOPLE:
        return False
    elif own.origin == Origin.MEASURED and _confirms(own, rate=rate, latency_s=latency_s):
        own.save(update_fields=["recorded_at"])
        return False
    else:
        update(own, **measured)
    return True


def _confirms(own: Link | RegionLink, *, rate: float, latency_s: float) -> bool:
    same_rate = math.isclose(own.bandwidth_bytes_per_s, rate, rel_tol=SAME_RATIO)
    return same_rate and math.isclose(
        own.latency_s, latency_s, rel_tol=SAME_RATIO, abs_tol=SAME_LATENCY_S
    )
