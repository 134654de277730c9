"""Stores measurements of links. They never overwrite what a user entered."""

import math
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from statistics import median

from helixweb.inventory.link_sampling import Pair
from helixweb.inventory.models import (
    BY_PEOPLE,
    Cluster,
    Coordinator,
    Link,
    Node,
    Origin,
    RegionLink,
)
from helixweb.inventory.services.errors import NameTaken
from helixweb.inventory.services.link_orders import (
    ends_of_links,
    members_of,
    regions_by_people,
)
from helixweb.inventory.services.records import create, update
from runtime.protocol.reach import MeasuredLink

# What differs less from the measurement before is the same link.
SAME_RATIO = 0.1
SAME_LATENCY_S = 1e-3


def record_measured(
    process: Node | Coordinator, measured: Mapping[str, MeasuredLink], *, now: datetime
) -> None:
    """Store both directions of each link that the process measured and whose other end is known,
    and medians as the links of their regions. Skips regions whose link a user entered."""
    cluster = process.cluster
    members = {one.endpoint: one for one in ends_of_links(members_of(cluster.pk, now=now))}
    own = members.get(process.data_endpoint)
    entered = regions_by_people(cluster.pk)
    changed = set()
    for endpoint, link in measured.items():
        other = members.get(endpoint)
        if own is None or other is None or other is own:
            continue
        for source, target, rate in ((own, other, link.sent), (other, own, link.received)):
            regions = source.region, target.region
            if regions not in entered and keep_measured_link(
                cluster,
                (source.end, target.end),
                bandwidth_bytes_per_s=rate.bytes_per_s,
                is_floor=rate.is_floor,
                latency_s=link.rtt_s / 2,
            ):
                changed.add(regions)
    if changed:
        _keep_medians(cluster, changed)


def keep_measured_link(
    cluster: Cluster,
    ends: Pair,
    *,
    bandwidth_bytes_per_s: float,
    latency_s: float,
    is_floor: bool = False,
    kind: type[Link] | type[RegionLink] = Link,
) -> bool:
    """True if the numbers changed, which the change log and open pages then show; a measurement
    that confirms the one before only renews its time. A floor lowers nothing."""
    source, target = ends
    own = kind.unscoped.filter(cluster=cluster, source=source, target=target).first()
    is_measured = own is not None and own.origin == Origin.MEASURED
    if own is not None and is_measured and is_floor:
        bandwidth_bytes_per_s = max(bandwidth_bytes_per_s, own.bandwidth_bytes_per_s)
    measured = {
        "bandwidth_bytes_per_s": bandwidth_bytes_per_s,
        "latency_s": latency_s,
        "origin": Origin.MEASURED,
    }
    if own is None:
        with suppress(NameTaken):  # another process reported it at the same moment
            create(kind, cluster=cluster, source=source, target=target, **measured)
    elif own.origin in BY_PEOPLE:
        return False
    elif is_measured and _confirms(own, rate=bandwidth_bytes_per_s, latency_s=latency_s):
        own.save(update_fields=["recorded_at"])
        return False
    else:
        update(own, **measured)
    return True


def _keep_medians(cluster: Cluster, changed: set[Pair]) -> None:
    region_of = cluster.region_of
    rates: dict[Pair, list[tuple[float, float]]] = defaultdict(list)
    rows = Link.unscoped.filter(cluster=cluster, origin=Origin.MEASURED)
    for source, target, *numbers in rows.values_list(
        "source", "target", "bandwidth_bytes_per_s", "latency_s"
    ):
        if source in region_of and target in region_of:
            rates[region_of[source], region_of[target]].append((numbers[0], numbers[1]))
    for source, target in sorted(changed):
        bandwidths, latencies = zip(*rates[source, target], strict=True)
        keep_measured_link(
            cluster,
            (source, target),
            bandwidth_bytes_per_s=median(bandwidths),
            latency_s=median(latencies),
            kind=RegionLink,
        )


def _confirms(own: Link | RegionLink, *, rate: float, latency_s: float) -> bool:
    same_rate = math.isclose(own.bandwidth_bytes_per_s, rate, rel_tol=SAME_RATIO)
    return same_rate and math.isclose(
        own.latency_s, latency_s, rel_tol=SAME_RATIO, abs_tol=SAME_LATENCY_S
    )
