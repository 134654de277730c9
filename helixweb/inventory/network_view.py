"""What the page of a network shows: the matrix of nodes or of regions, with ages and sources."""

from collections.abc import Mapping, Sequence, Set
from datetime import datetime
from typing import Any

from django.utils.translation import gettext as _

from helixweb.charts.chart import Chart
from helixweb.charts.network_matrix import MatrixCell, Measure, network_matrix
from helixweb.charts.quantities import age_text
from helixweb.inventory.models import Cluster
from helixweb.inventory.network import KnownLink, Network, Pair, RegionPair
from helixweb.inventory.signals import links_asked, links_at_work_asked

# From this many names on the matrix is one of regions, each pair of which can be opened.
GROUPED_FROM = 64
MEASURES: tuple[Measure, ...] = ("bandwidth", "latency")


def links_in_use(cluster: Cluster) -> frozenset[Pair]:
    """Links that carry the flow of the plan at work, as the apps above know it."""
    answers: Sequence[tuple[object, Any]] = links_asked.send(sender=Cluster, cluster_id=cluster.pk)
    return frozenset(pair for _, pairs in answers for pair in pairs)


def links_at_work(cluster: Cluster, *, now: datetime) -> Any:
    """What the apps above measure of links now; None: nothing."""
    answers: Sequence[tuple[object, Any]] = links_at_work_asked.send(
        sender=Cluster, cluster_id=cluster.pk, now=now
    )
    return next((answer for _, answer in answers if answer is not None), None)


def matrix_view(
    network: Network,
    *,
    measure: Measure,
    used: Set[Pair],
    now: datetime,
    opened: Pair | None = None,
) -> dict[str, Any]:
    """Of all nodes; from `GROUPED_FROM` names on of regions, or of the pair that is `opened`."""
    is_bandwidth, left_out = measure == "bandwidth", 0
    grouped = len(network.names) >= GROUPED_FROM
    if opened is not None and not all(region in network.members for region in opened):
        opened = None
    if grouped and opened is None:
        title = _("Bandwidth between regions") if is_bandwidth else _("Latency between regions")
        chart = _region_matrix(network, measure=measure, used=used)
    else:
        names = network.names
        title = _("Bandwidth between nodes") if is_bandwidth else _("Latency between nodes")
        if opened is not None:
            one, other = opened
            title = _("Between the nodes of %(one)s and %(other)s") % {"one": one, "other": other}
            wanted = dict.fromkeys((*network.members[one], *network.members[other]))
            names = tuple(wanted)[:GROUPED_FROM]
            left_out = len(wanted) - len(names)
        chart = _node_matrix(network, names, measure=measure, used=used, now=now)
    return {
        "title": title,
        "chart": chart,
        "grouped": grouped,
        "opened": opened,
        "left_out": left_out,
    }


def source_and_age(link: KnownLink, *, now: datetime) -> str:
    """Where the numbers come from and how old they are."""
    shared = _(", of the regions") if link.of_regions else ""
    if link.recorded_at is None:
        return _("%(origin)s%(shared)s, age unknown") % {"origin": _(link.origin), "shared": shared}
    return _("%(origin)s%(shared)s, %(age)s old") % {
        "origin": _(link.origin),
        "shared": shared,
        "age": age_text((now - link.recorded_at).total_seconds()),
    }


def _node_matrix(
    network: Network, names: tuple[str, ...], *, measure: Measure, used: Set[Pair], now: datetime
) -> Chart:
    links = network.links_between(names, names)
    # Most pairs have the link of their regions, which is one for all of them.
    notes = {link: source_and_age(link, now=now) for link in set(links.values())}
    cells = {
        pair: MatrixCell(
            bandwidth_bytes_per_s=link.bandwidth_bytes_per_s,
            latency_s=link.latency_s,
            note=notes[link],
            in_use=pair in used,
        )
        for pair, link in links.items()
    }
    return network_matrix(names, cells, measure=measure, possible=len(names) * (len(names) - 1))


def _region_matrix(network: Network, *, measure: Measure, used: Set[Pair]) -> Chart:
    group_of = network.group_of
    used_regions = {
        (group_of[source], group_of[target])
        for source, target in used
        if source in group_of and target in group_of
    }
    cells: Mapping[Pair, MatrixCell] = {
        (pair.source, pair.target): _region_cell(pair, used_regions)
        for row in network.rows
        for pair in row
        if pair.connected
    }
    return network_matrix(tuple(network.members), cells, measure=measure)


def _region_cell(pair: RegionPair, used: Set[Pair]) -> MatrixCell:
    """The slowest of its links counts: it is what a placement across the pair must expect."""
    return MatrixCell(
        bandwidth_bytes_per_s=pair.slowest_bytes_per_s,
        latency_s=pair.longest_s,
        note=_("slowest of %(connected)s of %(possible)s pairs")
        % {"connected": f"{pair.connected:,}", "possible": f"{pair.possible:,}"},
        in_use=(pair.source, pair.target) in used,
    )
