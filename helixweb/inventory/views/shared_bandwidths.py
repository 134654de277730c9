"""Bandwidth that several links of a cluster share: edited beside its network."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods

from helixweb.inventory import services
from helixweb.inventory.forms import SharedBandwidthForm
from helixweb.inventory.models import Cluster, SharedBandwidth
from helixweb.inventory.views.editing import Page, delete_page, edit_page

INTRO = gettext_lazy(
    "Limits what its members send, or receive, all together, as an uplink of "
    "a region or a network card does. The bandwidth of each link holds as "
    "well."
)


def _page(cluster: Cluster, title: str, submit: str, intro: str) -> Page:
    return Page(
        title=title,
        submit=submit,
        back_url=reverse("network", args=[cluster.pk]) + "#shared",
        back_title=_("Network of %(cluster)s") % {"cluster": cluster},
        intro=intro,
    )


def _row(cluster_pk: int, pk: int) -> SharedBandwidth:
    rows = SharedBandwidth.objects.select_related("cluster")
    return get_object_or_404(rows, pk=pk, cluster_id=cluster_pk)


@require_http_methods(["GET", "POST"])
def shared_bandwidth_new(request: HttpRequest, pk: int) -> HttpResponse:
    """Members, and what they have together."""
    cluster = get_object_or_404(Cluster, pk=pk)
    form = SharedBandwidthForm(request.POST or None)
    page = _page(cluster, _("Share a bandwidth"), _("Add"), str(INTRO))

    def save() -> str:
        services.create(SharedBandwidth, cluster=cluster, **form.row_fields())
        return page.back_url

    return edit_page(request, form, page=page, save=save)


@require_http_methods(["GET", "POST"])
def shared_bandwidth_edit(request: HttpRequest, pk: int, shared_pk: int) -> HttpResponse:
    """Its members and all else."""
    row = _row(pk, shared_pk)
    initial = SharedBandwidthForm.initial_of(row)
    form = SharedBandwidthForm(request.POST or None, initial=initial)
    page = _page(
        row.cluster, _("Edit shared bandwidth %(row)s") % {"row": row}, _("Save"), str(INTRO)
    )

    def save() -> str:
        services.update(row, **form.row_fields())
        return page.back_url

    return edit_page(request, form, page=page, save=save)


@require_http_methods(["GET", "POST"])
def shared_bandwidth_delete(request: HttpRequest, pk: int, shared_pk: int) -> HttpResponse:
    """Only the links' own bandwidths hold then."""
    row = _row(pk, shared_pk)
    page = _page(
        row.cluster,
        _("Delete shared bandwidth %(row)s?") % {"row": row},
        _("Delete"),
        _("Its members are then limited by their own links only."),
    )
    return delete_page(request, row, page=page)
