"""Pages of channels: the list, the form of one, its tests, and what became of deliveries."""

from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.cache import never_cache

from helixweb.access.needs import OPERATOR, needs
from helixweb.alerting import deliveries, services
from helixweb.alerting.forms import ChannelForm
from helixweb.alerting.models import Channel, Delivery
from helixweb.alerting.views import AlertingPages
from helixweb.common.queries import query_id
from helixweb.inventory.models import Cluster
from helixweb.inventory.views.editing import Page, edit_page

PER_PAGE = 50


@needs(OPERATOR)
@never_cache
def channels(request: HttpRequest) -> HttpResponse:
    """Of every cluster."""
    return _list(request)


def _list(request: HttpRequest, *, secret: str = "", of: Channel | None = None) -> HttpResponse:
    rows = (
        Channel.objects.within(request).select_related("cluster").order_by("cluster__name", "name")
    )
    context = {
        "section": "alerts",
        "clusters": Cluster.objects.within(request),
        "channels": rows,
        "secret": secret,
        "of": of,
    }
    return render(request, "alerting/channels.html", context)


@needs(OPERATOR, OPERATOR, of=Cluster, by="cluster_pk")
def channel_new(request: HttpRequest, cluster_pk: int) -> HttpResponse:
    """The secret of a webhook is shown this once."""
    cluster = get_object_or_404(Cluster.objects.within(request), pk=cluster_pk)
    form = ChannelForm(request.POST or None)
    page = Page(
        title=_("New channel of %(cluster)s") % {"cluster": cluster},
        submit=_("Add"),
        back_url=reverse("alert-channels"),
        back_title=_("Channels"),
    )

    def save() -> HttpResponse:
        row = services.create(Channel, cluster=cluster, **form.cleaned_data)
        return _list(request, secret=row.shown_secret, of=row)

    return edit_page(request, form, page=page, save=save)


class ChannelPages(AlertingPages):
    """Edits all of a channel but its way and its secret."""

    what, model, form = gettext_lazy("channel"), Channel, ChannelForm
    intros = {
        "edit": "%(disabled_why)s",
        "delete": gettext_lazy(
            "No more notifications are sent there, and the log of its deliveries is deleted too."
        ),
    }

    def list_place(self, cluster: Cluster) -> tuple[str, str]:
        return reverse("alert-channels"), _("Channels")

    def values_of(self, row: Channel) -> dict[str, Any]:
        return {"disabled_why": row.disabled_why}


@needs(change=OPERATOR, of=Channel)
def channel_test(request: HttpRequest, pk: int) -> HttpResponse:
    """Leads to the log, where what became of it shows."""
    row = get_object_or_404(Channel.objects.within(request), pk=pk)
    deliveries.test_channel(row, now=timezone.now())
    messages.success(request, _("A test is on its way to %(row)s.") % {"row": row})
    return redirect(f"{reverse('alert-deliveries')}?channel={row.pk}")


@needs(change=OPERATOR, of=Channel)
def channel_secret(request: HttpRequest, pk: int) -> HttpResponse:
    """Another one, shown this once."""
    row = get_object_or_404(Channel.objects.within(request), pk=pk)
    try:
        return _list(request, secret=services.new_secret(row), of=row)
    except services.AlertingError as error:
        messages.error(request, str(error))
        return redirect("alert-channels")


@needs(OPERATOR)
@never_cache
def delivery_log(request: HttpRequest) -> HttpResponse:
    """`?channel=`: the newest first, with every try."""
    rows = (
        Delivery.objects.within(request)
        .select_related("channel__cluster")
        .prefetch_related("attempts")
    )
    chosen = query_id(request, "channel")
    rows = rows.order_by("-pk")
    if chosen:
        rows = rows.filter(channel=chosen)
    context: dict[str, Any] = {
        "section": "alerts",
        "channels": Channel.objects.within(request).select_related("cluster"),
        "chosen": chosen,
        "page": Paginator(rows, PER_PAGE).get_page(request.GET.get("page")),
    }
    return render(request, "alerting/deliveries.html", context)


@needs(change=OPERATOR, of=Delivery)
def delivery_again(request: HttpRequest, pk: int) -> HttpResponse:
    """One that failed."""
    row = get_object_or_404(Delivery.objects.within(request), pk=pk)
    if deliveries.again(row, now=timezone.now()):
        messages.success(request, _("It is sent again."))
    else:
        messages.error(request, _("Only a delivery that failed is sent again."))
    return redirect(f"{reverse('alert-deliveries')}?channel={row.channel_id}")
