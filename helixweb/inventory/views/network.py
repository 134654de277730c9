"""The network of a cluster: a picture, the regions, and every link."""

from collections.abc import Mapping, Sequence, Set
from datetime import datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from helixweb.access.needs import VIEWER, needs
from helixweb.charts.chart import Chart, age_text
from helixweb.charts.heat_maps import MatrixCell, Measure, network_matrix
from helixweb.common.pages import follows_events, page_of
from helixweb.inventory.forms import LinkForm, RegionLinkForm, SharedBandwidthForm
from helixweb.inventory.models import Cluster, Link, RegionLink, SharedBandwidth
from helixweb.inventory.network import KnownLink, Network, Pair, RegionPair
from helixweb.inventory.signals import links_asked, links_at_work_asked
from helixweb.inventory.views.editing import ResourcePages


@needs(VIEWER, row=Cluster)
@follows_events
def network(request: HttpRequest, cluster: Cluster) -> HttpResponse:
    """`?show=latency` and `?from=&to=` choose the matrix, `?node=` narrows the list of links."""
    found, now = Network(cluster), timezone.now()
    links = cluster.links.order_by("pk")
    node = request.GET.get("node", "")
    if node:
        links = links.filter(source=node) | links.filter(target=node)
    measure: Measure = "latency" if request.GET.get("show") == "latency" else "bandwidth"
    ends = request.GET.get("from", ""), request.GET.get("to", "")
    page = page_of(request, links)
    used = links_in_use(cluster)
    context = {
        "cluster": cluster,
        "network": found,
        "measure": measure,
        "measures": MEASURES,
        "matrix": matrix_view(
            found, measure=measure, used=used, now=now, opened=ends if all(ends) else None
        ),
        "region_links": [_line(row, used, now=now) for row in cluster.region_links.all()],
        "shared_bandwidths": cluster.shared_bandwidths.all(),
        "node": node,
        "page": page,
        "lines": [_line(row, used, now=now) for row in page],
        "work": links_at_work(cluster, now=now),
    }
    return render(request, "inventory/network.html", context)


def _line(row: Link | RegionLink, used: Set[Pair], *, now: datetime) -> dict[str, Any]:
    """A row of a table of links."""
    age = None if row.recorded_at is None else (now - row.recorded_at).total_seconds()
    return {"row": row, "age_s": age, "in_use": (row.source, row.target) in used}


class _NetworkPages(ResourcePages):
    def list_place(self, cluster: Cluster) -> tuple[str, str]:
        title = _("Network of %(cluster)s") % {"cluster": cluster}
        return reverse("network", args=[cluster.pk]), title

    def initial_of_new(self, request: HttpRequest, cluster: Cluster) -> dict[str, Any]:
        return {"latency_s": 1e-3}


class LinkPages(_NetworkPages):
    """Directed links between two nodes."""

    name, at, what = "link", "clusters/<int:pk>/links", gettext_lazy("link")
    model, form = Link, LinkForm
    intros = {
        "new": gettext_lazy(
            "One direction; add the way back as a link of its own. It counts instead "
            "of the link between the two regions."
        ),
        "delete": gettext_lazy(
            "If its regions have a link between them, that one counts from now on. Machines that "
            "serve nothing measure the pair again, unless a person entered the link of its regions."
        ),
    }


class RegionLinkPages(_NetworkPages):
    """Links that count between all nodes of two regions."""

    name, at, what = "region-link", "clusters/<int:pk>/region-links", gettext_lazy("region link")
    model, form = RegionLink, RegionLinkForm
    intros = {
        "new": gettext_lazy(
            "Counts from every node of the one region to every node of the other that it has no "
            "link of its own to; the way back is to be added, too. A region needs one to itself."
        ),
        "delete": gettext_lazy(
            "Pairs of nodes without a link of their own are not connected any more."
        ),
    }

    def initial_of_new(self, request: HttpRequest, cluster: Cluster) -> dict[str, Any]:
        ends = dict.fromkeys(("source", "target"), cluster.coordinator_region)
        return {**super().initial_of_new(request, cluster), **ends}


_TOGETHER = gettext_lazy(
    "Limits what its members send, or receive, all together, as an uplink of "
    "a region or a network card does. The bandwidth of each link holds as "
    "well."
)


class SharedBandwidthPages(_NetworkPages):
    """Bandwidth that several links share."""

    name, at = "shared-bandwidth", "clusters/<int:pk>/shared-bandwidths"
    what, model, form = gettext_lazy("shared bandwidth"), SharedBandwidth, SharedBandwidthForm
    intros = {
        **dict.fromkeys(("new", "edit"), _TOGETHER),
        "delete": gettext_lazy("Its members are then limited by their own links only."),
    }

    def list_place(self, cluster: Cluster) -> tuple[str, str]:
        url, title = super().list_place(cluster)
        return f"{url}#shared", title


# From this many names on the matrix is one of regions, each pair of which can be opened.
GROUPED_FROM = 64
MEASURES: tuple[Measure, ...] = ("bandwidth", "latency")


def links_in_use(cluster: Cluster) -> frozenset[Pair]:
    """Links that carry flow of the live plan, from the apps above."""
    answers: Sequence[tuple[object, Any]] = links_asked.send(sender=Cluster, cluster_id=cluster.pk)
    return frozenset(pair for _, pairs in answers for pair in pairs)


def links_at_work(cluster: Cluster, *, now: datetime) -> Any:
    """Context of links measured by the apps above; None: nothing is measured."""
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
    """The matrix of all nodes; from `GROUPED_FROM` names on, of regions or of the `opened` pair."""
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
    """Origin and age of the link's numbers."""
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
