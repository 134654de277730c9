"""Keeps what stages measured of links that no plan uses, for the network's page and the next plan.

What a person entered or imported stays; all else is replaced by what the link does.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from helixweb.deployment.live_links import LiveLink
from helixweb.inventory.models import BY_PEOPLE, Cluster, Origin
from helixweb.inventory.network import KnownLink
from helixweb.inventory.presentation import cluster_network
from helixweb.inventory.services import measured_links

# A report may be repeated; a measurement is written once, when it is new.
FRESH_S = 30.0
_CLOCKS_DIFFER = timedelta(seconds=5)


def keep_measured(cluster: Cluster, links: Sequence[LiveLink], *, now: datetime) -> int:
    """Write what the `live_links` of a deployment measured in the last seconds into the inventory;
    returns how many links have other numbers than before."""
    fresh = [link for link in links if _is_fresh(link)]
    if not fresh:
        return 0
    network = cluster_network(cluster)
    written = 0
    for link in fresh:
        stats, measured_at = link.stats, now - timedelta(seconds=_age_s(link))
        rate, rtt_s = stats.bandwidth_bytes_per_s, stats.rtt_s
        known = network.link(*link.ends) if set(link.ends) <= set(network.names) else None
        if rate is None or rtt_s is None or known is None:
            continue
        if not known.of_regions and _stays(known, measured_at=measured_at):
            continue
        if stats.bandwidth_is_floor:
            rate = max(rate, known.bandwidth_bytes_per_s)
        written += measured_links.keep_measured_link(
            cluster, link.ends, bandwidth_bytes_per_s=rate, latency_s=rtt_s / 2
        )
    return written


def _stays(own: KnownLink, *, measured_at: datetime) -> bool:
    """Whether the pair's own numbers are a person's, or this measurement's already."""
    if own.origin != Origin.MEASURED or own.recorded_at is None:
        return own.origin in BY_PEOPLE
    return own.recorded_at > measured_at - _CLOCKS_DIFFER


def _age_s(link: LiveLink) -> float:
    return link.age_s + (link.stats.bandwidth_age_s or 0.0)


def _is_fresh(link: LiveLink) -> bool:
    """Measured just now, by nothing but what measures."""
    known = link.stats.bandwidth_bytes_per_s is not None
    return known and not link.is_at_work and _age_s(link) <= FRESH_S
