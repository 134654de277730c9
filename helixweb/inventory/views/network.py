"""The network of a cluster: a picture, the regions, and every link."""

from collections.abc import Set
from datetime import datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.cache import never_cache

from helixweb.access.needs import VIEWER, needs
from helixweb.charts.network_matrix import Measure
from helixweb.common import events
from helixweb.common.pages import page_of
from helixweb.inventory.forms import LinkForm, RegionLinkForm, SharedBandwidthForm
from helixweb.inventory.models import Cluster, Link, RegionLink, SharedBandwidth
from helixweb.inventory.network import Pair
from helixweb.inventory.network_view import MEASURES, links_at_work, links_in_use, matrix_view
from helixweb.inventory.presentation import cluster_network
from helixweb.inventory.views.editing import ResourcePages


@needs(VIEWER, of=Cluster)
@never_cache
def network(request: HttpRequest, pk: int) -> HttpResponse:
    """`?show=latency` and `?from=&to=` choose the matrix, `?node=` narrows the list of links."""
    last_event_id = events.latest_id()
    cluster = get_object_or_404(Cluster.objects.within(request), pk=pk)
    found, now = cluster_network(cluster), timezone.now()
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
        "last_event_id": last_event_id,
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
