"""Pages of alerts and silences, and the bell that every page has."""

from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache

from helixweb.access.needs import OPERATOR, VIEWER, needs
from helixweb.alerting import services
from helixweb.alerting.forms import AlertFilter, SilenceForm
from helixweb.alerting.models import Alert, Silence
from helixweb.common import events
from helixweb.inventory.models import Cluster
from helixweb.inventory.views.editing import Page, ResourcePages, edit_page

PER_PAGE = 50


class AlertingPages(ResourcePages):
    """Pages of rows that `services` makes and changes."""

    def create(self, **values: Any) -> Any:
        return services.create(self.model, **values)

    def update(self, row: Any, **values: Any) -> None:
        services.update(row, **values)


@needs(VIEWER)
@never_cache
def alerts(request: HttpRequest) -> HttpResponse:
    """`?cluster=&state=`: what is open; by state what else there was."""
    last_event_id = events.latest_id()
    rows = Alert.objects.within(request).select_related("rule", "cluster").order_by("-pk")
    chosen = AlertFilter(request.GET, queryset=rows, request=request)
    clusters = Cluster.objects.within(request)
    context = {
        "section": "alerts",
        "form": chosen.form,
        "is_filtered": any(request.GET.get(name) for name in chosen.filters),
        "page": Paginator(chosen.qs, PER_PAGE).get_page(request.GET.get("page")),
        "topics": ",".join(f"cluster:{cluster.pk}" for cluster in clusters),
        "last_event_id": last_event_id,
    }
    return render(request, "alerting/alerts.html", context)


@needs(VIEWER)
@never_cache
def bell(request: HttpRequest) -> HttpResponse:
    """How many fire that nobody looks after."""
    return render(
        request,
        "alerting/_bell.html",
        {"firing": services.unattended(Alert.objects.within(request)).count()},
    )


@needs(change=OPERATOR, of=Alert)
def acknowledge(request: HttpRequest, pk: int) -> HttpResponse:
    """Somebody looks after it."""
    alert = get_object_or_404(Alert.objects.within(request), pk=pk)
    comment = request.POST.get("comment", "")[:500]
    try:
        services.acknowledge(
            alert, by=request.user.get_username(), comment=comment, now=timezone.now()
        )
    except services.AlertingError as error:
        messages.error(request, str(error))
    else:
        messages.success(request, _("Noted that you look after %(alert)s.") % {"alert": alert})
    return redirect("alerts")


@needs(VIEWER)
@never_cache
def silences(request: HttpRequest) -> HttpResponse:
    """Those that hold, and those of before."""
    now = timezone.now()
    rows = Silence.objects.within(request).select_related("cluster", "rule", "created_by")
    context = {
        "section": "alerts",
        "clusters": Cluster.objects.within(request),
        "page": Paginator(rows, PER_PAGE).get_page(request.GET.get("page")),
        "now": now,
    }
    return render(request, "alerting/silences.html", context)


@needs(OPERATOR, OPERATOR, of=Cluster, by="cluster_pk")
def silence_new(request: HttpRequest, cluster_pk: int) -> HttpResponse:
    """`?rule=&subject=` fill the form."""
    cluster = get_object_or_404(Cluster.objects.within(request), pk=cluster_pk)
    initial = {name: request.GET.get(name, "") for name in ("rule", "subject")}
    form = SilenceForm(request.POST or None, cluster=cluster, initial=initial)
    page = Page(
        title=_("Silence alerts of %(cluster)s") % {"cluster": cluster},
        submit=_("Silence"),
        back_url=reverse("alert-silences"),
        back_title=_("Silences"),
        intro=_("Alerts are still shown; no notifications are sent."),
    )

    def save() -> str:
        services.create(Silence, cluster=cluster, created_by=request.user, **form.row_fields())
        return page.back_url

    return edit_page(request, form, page=page, save=save)


@needs(change=OPERATOR, of=Silence)
def silence_end(request: HttpRequest, pk: int) -> HttpResponse:
    """From now on alerts are told again."""
    row = get_object_or_404(Silence.objects.within(request), pk=pk)
    now = timezone.now()
    if row.starts_at < now < row.ends_at:
        services.update(row, ends_at=now)
    messages.success(request, _("Alerts are told again."))
    return redirect("alert-silences")
