"""Pages of alerts, rules, channels, silences and deliveries, and the bell that every page has."""

from typing import Any, ClassVar

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from helixweb.access.needs import OPERATOR, VIEWER, needs
from helixweb.alerting import deliveries, services
from helixweb.alerting.forms import (
    AlertFilter,
    ChannelForm,
    DeliveryFilter,
    RuleFilter,
    RuleForm,
    SilenceForm,
)
from helixweb.alerting.kinds import DEFAULTS, Kind
from helixweb.alerting.models import Alert, AlertRule, Channel, Delivery, Silence
from helixweb.common.page_refusals import refusals_shown
from helixweb.common.pages import follows_events, list_page
from helixweb.inventory.models import Cluster
from helixweb.inventory.services import records
from helixweb.inventory.views.editing import ResourcePages


@needs(VIEWER)
@follows_events
def alerts(request: HttpRequest) -> HttpResponse:
    """`?cluster=&state=`: what is open; by state what else there was."""
    rows = Alert.objects.within(request).select_related("rule", "cluster").order_by("-pk")
    clusters = Cluster.objects.within(request)
    topics = ",".join(f"cluster:{cluster.pk}" for cluster in clusters)
    return list_page(request, "alerting/alerts.html", rows, filters=AlertFilter, topics=topics)


@needs(VIEWER)
def bell(request: HttpRequest) -> HttpResponse:
    """The number of firing alerts that are not acknowledged."""
    count = services.unattended(Alert.objects.within(request)).count()
    return render(request, "alerting/_bell.html", {"firing": count})


@needs(change=OPERATOR, row=Alert)
def acknowledge(request: HttpRequest, alert: Alert) -> HttpResponse:
    """The user looks after it."""
    comment = request.POST.get("comment", "")[:500]
    with refusals_shown(request):
        by = request.user.get_username()
        services.acknowledge(alert, by=by, comment=comment, now=timezone.now())
        messages.success(request, _("Noted that you look after %(alert)s.") % {"alert": alert})
    return redirect("alerts")


class AlertingPages(ResourcePages):
    """Pages of alerting: only URLs of new rows contain the cluster. `list_title` is the title of
    the list of all rows, whose URL is named NAMEs."""

    list_title: ClassVar[Any]

    def list_place(self, cluster: Cluster) -> tuple[str, str]:
        return reverse(f"{self.name}s"), str(self.list_title)

    @property
    def urls(self) -> list[URLPattern]:
        ends = {"new": "new/<int:cluster_pk>", "edit": "<int:pk>/", "delete": "<int:pk>/delete"}
        return [
            path(
                f"{self.at}/{ends[page]}",
                self.view(page, by="cluster_pk")
                if page == "new"
                else self.view(page, of=self.model),
                name=f"{self.name}-{page}",
            )
            for page in self.pages
        ]


@needs(VIEWER)
def rules(request: HttpRequest) -> HttpResponse:
    """`?cluster=`: of one; a new cluster gets the usual ones when it is first looked at."""
    rows = AlertRule.objects.within(request).select_related("cluster").prefetch_related("channels")
    rows = rows.order_by("cluster__name", "name")
    clusters = Cluster.objects.within(request)
    return list_page(request, "alerting/rules.html", rows, filters=RuleFilter, clusters=clusters)


class RulePages(AlertingPages):
    """Rules; a new one begins as the usual rule about lost nodes."""

    name, at, list_title = "alert-rule", "alerts/rules", gettext_lazy("Alert rules")
    what, model, form = gettext_lazy("alert rule"), AlertRule, RuleForm
    intros = {
        "edit": gettext_lazy("Watches: %(kind)s."),
        "delete": gettext_lazy(
            "Its alerts are forgotten, also those that fire, and no notifications are sent."
        ),
    }

    def values_of(self, row: AlertRule) -> dict[str, Any]:
        return {"kind": row.get_kind_display()}

    def initial_of_new(self, request: HttpRequest, cluster: Cluster) -> dict[str, Any]:
        return {**DEFAULTS[Kind.NODE_LOST].columns, "kind": Kind.NODE_LOST}


def _channels(request: HttpRequest, *, secret: str = "", of: Channel | None = None) -> HttpResponse:
    """The list of channels, with the new `secret` of one, which is shown only once."""
    rows = Channel.objects.within(request).select_related("cluster")
    context = {
        "clusters": Cluster.objects.within(request),
        "channels": rows.order_by("cluster__name", "name"),
        "secret": secret,
        "of": of,
    }
    return render(request, "alerting/channels.html", context)


channels = needs(OPERATOR)(_channels)


class ChannelPages(AlertingPages):
    """Edits all of a channel but its way and its secret, which is shown once it is made."""

    name, at, list_title = "alert-channel", "alerts/channels", gettext_lazy("Channels")
    what, model, form = gettext_lazy("channel"), Channel, ChannelForm
    titles = {"new": gettext_lazy("New channel of %(cluster)s")}
    intros = {
        "edit": "%(disabled_why)s",
        "delete": gettext_lazy(
            "No more notifications are sent there, and the log of its deliveries is deleted too."
        ),
    }

    def values_of(self, row: Channel) -> dict[str, Any]:
        return {"disabled_why": row.disabled_why}

    def after_new(self, request: HttpRequest, row: Channel) -> HttpResponse:
        return _channels(request, secret=row.secret, of=row)


@needs(change=OPERATOR, row=Channel)
def channel_test(request: HttpRequest, row: Channel) -> HttpResponse:
    """Leads to the log, where what became of it shows."""
    deliveries.test_channel(row, now=timezone.now())
    messages.success(request, _("A test is on its way to %(row)s.") % {"row": row})
    return redirect(f"{reverse('alert-deliveries')}?channel={row.pk}")


@needs(change=OPERATOR, row=Channel)
def channel_secret(request: HttpRequest, row: Channel) -> HttpResponse:
    """Another one, shown this once."""
    with refusals_shown(request):
        return _channels(request, secret=services.replace_secret(row), of=row)
    return redirect("alert-channels")


@needs(VIEWER)
def silences(request: HttpRequest) -> HttpResponse:
    """The list of current and past silences."""
    rows = Silence.objects.within(request).select_related("cluster", "rule", "created_by")
    clusters = Cluster.objects.within(request)
    now = timezone.now()
    return list_page(request, "alerting/silences.html", rows, clusters=clusters, now=now)


class SilencePages(AlertingPages):
    """`?rule=&subject=` fill the form of a new silence."""

    name, at, pages = "alert-silence", "alerts/silences", ("new",)
    list_title = gettext_lazy("Silences")
    what, model, form = gettext_lazy("alert silence"), Silence, SilenceForm
    titles = {"new": gettext_lazy("Silence alerts of %(cluster)s")}
    submits = {"new": gettext_lazy("Silence")}
    intros = {"new": gettext_lazy("Alerts are still shown; no notifications are sent.")}

    def initial_of_new(self, request: HttpRequest, cluster: Cluster) -> dict[str, Any]:
        return {name: request.GET.get(name, "") for name in ("rule", "subject")}

    def create(self, request: HttpRequest, **values: Any) -> Silence:
        return records.create(Silence, created_by=request.user, **values)


@needs(change=OPERATOR, row=Silence)
def silence_end(request: HttpRequest, row: Silence) -> HttpResponse:
    """End a silence now."""
    now = timezone.now()
    if row.starts_at < now < row.ends_at:
        records.update(row, ends_at=now)
    messages.success(request, _("Alerts are told again."))
    return redirect("alert-silences")


@needs(OPERATOR)
def delivery_log(request: HttpRequest) -> HttpResponse:
    """`?channel=`: the newest first, with every try."""
    rows = Delivery.objects.within(request).select_related("channel__cluster").order_by("-pk")
    rows = rows.prefetch_related("attempts")
    return list_page(request, "alerting/deliveries.html", rows, filters=DeliveryFilter)


@needs(change=OPERATOR, row=Delivery)
def delivery_again(request: HttpRequest, row: Delivery) -> HttpResponse:
    """One that failed."""
    if deliveries.again(row, now=timezone.now()):
        messages.success(request, _("It is sent again."))
    else:
        messages.error(request, _("Only a delivery that failed is sent again."))
    return redirect(f"{reverse('alert-deliveries')}?channel={row.channel_id}")
