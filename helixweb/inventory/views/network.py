"""The network of a cluster: a picture, the regions, and every link."""

from collections.abc import Set
from datetime import datetime
from typing import Any

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods

from helixweb.charts.network_matrix import Measure
from helixweb.common import events
from helixweb.inventory import services
from helixweb.inventory.forms import LinkForm, RegionLinkForm
from helixweb.inventory.models import Cluster, Link, RegionLink
from helixweb.inventory.network import Pair
from helixweb.inventory.network_view import (
    MEASURES,
    links_at_work,
    links_in_use,
    matrix_view,
)
from helixweb.inventory.presentation import cluster_network
from helixweb.inventory.views.editing import Page, delete_page, edit_page

LINKS_PER_PAGE = 50


@require_GET
@never_cache
def network(request: HttpRequest, pk: int) -> HttpResponse:
    """`?show=latency` and `?from=&to=` choose the matrix, `?node=` narrows the list of links."""
    last_event_id = events.latest_id()
    cluster = get_object_or_404(Cluster, pk=pk)
    found, now = cluster_network(cluster), timezone.now()
    links = cluster.links.order_by("pk")
    node = request.GET.get("node", "")
    if node:
        links = links.filter(source=node) | links.filter(target=node)
    measure: Measure = "latency" if request.GET.get("show") == "latency" else "bandwidth"
    ends = request.GET.get("from", ""), request.GET.get("to", "")
    page = Paginator(links, LINKS_PER_PAGE).get_page(request.GET.get("page"))
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


def _page(cluster: Cluster, title: str, submit: str, intro: str = "") -> Page:
    return Page(
        title=title,
        submit=submit,
        back_url=reverse("network", args=[cluster.pk]),
        back_title=_("Network of %(cluster)s") % {"cluster": cluster},
        intro=intro,
    )


@require_http_methods(["GET", "POST"])
def link_new(request: HttpRequest, pk: int) -> HttpResponse:
    """One directed link."""
    cluster = get_object_or_404(Cluster, pk=pk)
    form = LinkForm(request.POST or None, cluster=cluster)
    page = _page(
        cluster,
        _("Add a link"),
        _("Add link"),
        _(
            "One direction; add the way back as a link of its own. It counts instead "
            "of the link between the two regions."
        ),
    )

    def save() -> str:
        services.create(Link, cluster=cluster, **form.row_fields())
        return page.back_url

    return edit_page(request, form, page=page, save=save)


@require_http_methods(["GET", "POST"])
def link_edit(request: HttpRequest, pk: int, link_pk: int) -> HttpResponse:
    """Bandwidth and latency of a link, or its ends."""
    row = get_object_or_404(Link.objects.select_related("cluster"), pk=link_pk, cluster_id=pk)
    form = LinkForm(request.POST or None, cluster=row.cluster, initial=LinkForm.initial_of(row))
    page = _page(row.cluster, _("Edit link %(row)s") % {"row": row}, _("Save"))

    def save() -> str:
        services.update(row, **form.row_fields())
        return page.back_url

    return edit_page(request, form, page=page, save=save)


@require_http_methods(["GET", "POST"])
def link_delete(request: HttpRequest, pk: int, link_pk: int) -> HttpResponse:
    """One direction."""
    row = get_object_or_404(Link.objects.select_related("cluster"), pk=link_pk, cluster_id=pk)
    page = _page(
        row.cluster,
        _("Delete link %(row)s?") % {"row": row},
        _("Delete link"),
        _(
            "If its regions have a link between them, that one counts from now on. Machines that "
            "serve nothing measure the pair again, unless a person entered the link of its regions."
        ),
    )
    return delete_page(request, row, page=page)


@require_http_methods(["GET", "POST"])
def region_link_new(request: HttpRequest, pk: int) -> HttpResponse:
    """What counts between two regions."""
    cluster = get_object_or_404(Cluster, pk=pk)
    region = cluster.coordinator_region
    form = RegionLinkForm(request.POST or None, initial={"source": region, "target": region})
    page = _page(
        cluster,
        _("Connect two regions"),
        _("Add"),
        _(
            "Counts from every node of the one region to every node of the other that it has no "
            "link of its own to; the way back is to be added, too. A region needs one to itself."
        ),
    )

    def save() -> str:
        services.create(RegionLink, cluster=cluster, **form.row_fields())
        return page.back_url

    return edit_page(request, form, page=page, save=save)


@require_http_methods(["GET", "POST"])
def region_link_edit(request: HttpRequest, pk: int, link_pk: int) -> HttpResponse:
    """Bandwidth and latency between two regions."""
    row = get_object_or_404(RegionLink.objects.select_related("cluster"), pk=link_pk, cluster_id=pk)
    form = RegionLinkForm(request.POST or None, initial=RegionLinkForm.initial_of(row))
    page = _page(row.cluster, _("Edit regions %(row)s") % {"row": row}, _("Save"))

    def save() -> str:
        services.update(row, **form.row_fields())
        return page.back_url

    return edit_page(request, form, page=page, save=save)


@require_http_methods(["GET", "POST"])
def region_link_delete(request: HttpRequest, pk: int, link_pk: int) -> HttpResponse:
    """Pairs of nodes without a link of their own are then not connected."""
    row = get_object_or_404(RegionLink.objects.select_related("cluster"), pk=link_pk, cluster_id=pk)
    page = _page(
        row.cluster,
        _("Disconnect regions %(row)s?") % {"row": row},
        _("Disconnect"),
        _("Pairs of nodes without a link of their own are not connected any more."),
    )
    return delete_page(request, row, page=page)
