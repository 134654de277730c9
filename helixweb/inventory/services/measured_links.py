"""Orders to a cluster's processes to try and measure links, read for all of them at once; and
stored measurements, which never overwrite what a user entered."""

import hmac
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import filterfalse
from statistics import median

from django.conf import settings
from django.core.cache import cache

from helixweb.inventory.link_sampling import Member, Pair, orders
from helixweb.inventory.models import (
    BY_PEOPLE,
    Cluster,
    Coordinator,
    Link,
    Node,
    Origin,
    RegionLink,
    lost_after,
)
from helixweb.inventory.services.errors import NameTaken
from helixweb.inventory.services.records import create, update
from runtime.protocol.reach import MOST_ENDPOINTS, LinksToMeasure, MeasuredLink, Reach

LOOKED_UP_EVERY_S = 4


# What differs less from the measurement before is the same link.
SAME_RATIO = 0.1
SAME_LATENCY_S = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkOrders:
    """Data endpoints of a cluster's online processes. `weights`: endpoints at which nodes serve
    weights, by their data endpoints. `dialled`: endpoints to which each process measures, by its
    own endpoint."""

    key: str
    coordinators: tuple[str, ...]
    nodes: tuple[str, ...]
    weights: Mapping[str, str]
    dialled: Mapping[str, tuple[str, ...]]

    def to_reach(self, process: Node | Coordinator) -> tuple[str, ...]:
        """Endpoints to try: all others', data ports first. Coordinators skip other coordinators
        and ports for weights."""
        if isinstance(process, Coordinator):
            return self.nodes[:MOST_ENDPOINTS]
        own = {process.data_endpoint, self.weights.get(process.data_endpoint)}
        every = (*self.coordinators, *self.nodes, *self.weights.values())
        return tuple(filterfalse(own.__contains__, every))[:MOST_ENDPOINTS]

    def to_measure(self, process: Node | Coordinator) -> LinksToMeasure:
        """The links that it measures by dialling; others know it by the same key."""
        dialled = self.dialled.get(process.data_endpoint, ())
        return LinksToMeasure(key=self.key, endpoints=dialled[:MOST_ENDPOINTS])


def link_orders(cluster_id: int, *, now: datetime) -> LinkOrders:
    """Looked up once in a turn for all processes of the cluster."""
    known: LinkOrders | None = cache.get(_cache_key(cluster_id, now))
    return known or look_up_orders(cluster_id, now=now)


def look_up_orders(cluster_id: int, *, now: datetime) -> LinkOrders:
    """The same as of now."""
    members = members_of(cluster_id, now=now)
    secret = settings.SECRET_KEY.encode()
    heard = [one for one in members if one.heard and one.endpoint]
    found = LinkOrders(
        key=hmac.digest(secret, f"links of {cluster_id}".encode(), "sha256").hex(),
        coordinators=tuple(one.endpoint for one in heard if one.is_coordinator),
        nodes=tuple(one.endpoint for one in heard if not one.is_coordinator),
        weights={one.endpoint: place for one in heard if (place := one.weights_endpoint)},
        dialled=orders(ends_of_links(members), is_known=_known_pairs(cluster_id, members)),
    )
    cache.set(_cache_key(cluster_id, now), found, timeout=2 * LOOKED_UP_EVERY_S)
    return found


def _cache_key(cluster_id: int, now: datetime) -> str:
    return f"link-orders-2-{cluster_id}-{turn_of(now)}"  # 1: without `weights`


def turn_of(at: datetime) -> int:
    """Equal for two moments between which nothing is looked up again."""
    return int(at.timestamp() // LOOKED_UP_EVERY_S)


def members_of(cluster_id: int, *, now: datetime) -> list[Member]:
    """Coordinators, then nodes, in the order in which they joined."""
    found = []
    for kind, region in ((Coordinator, "cluster__coordinator_region"), (Node, "region")):
        is_coordinator = kind is Coordinator
        rows = kind.unscoped.filter(cluster=cluster_id, joined_at__isnull=False).order_by("pk")
        found += [
            Member(
                name=name,
                is_coordinator=is_coordinator,
                region=place,
                endpoint=endpoint,
                heard=seen_at is not None and now - seen_at <= lost_after(),
                joined_at=joined_at,
                # Was checked when it came; earlier releases do not say whether they listen.
                reach=Reach.model_construct(**{"listens": is_coordinator, **reach}),
            )
            for name, place, endpoint, seen_at, joined_at, reach in rows.values_list(
                "name", region, "data_endpoint", "last_seen_at", "joined_at", "reach"
            )
        ]
    return found


def ends_of_links(members: Sequence[Member]) -> list[Member]:
    """Plans know one coordinator: of several the first."""
    first = next((one for one in members if one.is_coordinator), None)
    return [one for one in members if one is first or not one.is_coordinator]


def regions_by_people(cluster_id: int) -> frozenset[Pair]:
    """Pairs of regions whose links have values that a user entered."""
    links = RegionLink.unscoped.filter(cluster=cluster_id, origin__in=BY_PEOPLE)
    return frozenset(links.values_list("source", "target"))


def _known_pairs(cluster_id: int, members: Iterable[Member]) -> Callable[[Member, Member], bool]:
    """Returns a predicate: a user entered the link from one to the other, or it was measured since
    both joined."""
    joined = {member.end: member.joined_at for member in members}
    regions = regions_by_people(cluster_id)
    known: set[Pair] = set()
    rows = Link.unscoped.filter(cluster=cluster_id).exclude(origin=Origin.ESTIMATED)
    for source, target, origin, at in rows.values_list("source", "target", "origin", "recorded_at"):
        is_since = at is not None and all(
            at >= joined[name] for name in (source, target) if name in joined
        )
        if origin in BY_PEOPLE or is_since:
            known.add((source, target))

    def is_known(source: Member, target: Member) -> bool:
        return (source.region, target.region) in regions or (source.end, target.end) in known

    return is_known


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
