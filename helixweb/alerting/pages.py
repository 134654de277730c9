"""Pages of alerts, rules, channels, silences and deliveries with their forms, and the bell that
every page has."""

from datetime import timedelta
from typing import Any, ClassVar

import django_filters
from django import forms
from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from helixweb.access.needs import OPERATOR, VIEWER, needs
from helixweb.alerting import deliveries, services
from helixweb.alerting.kinds import DEFAULTS, Kind
from helixweb.alerting.models import (
    OPEN,
    SUBJECT_LENGTH,
    Alert,
    AlertRule,
    Channel,
    Delivery,
    Silence,
    validate_addresses,
)
from helixweb.common.number_field import NumberField
from helixweb.common.pages import ListFilter, follows_events, list_page, refusals_shown
from helixweb.inventory.columns import columns_of
from helixweb.inventory.forms import CLUSTER_FILTER, OfCluster, WordsField, numbers_of
from helixweb.inventory.models import Cluster
from helixweb.inventory.services import records
from helixweb.inventory.views.editing import ResourcePages

DURATIONS = {
    "1": gettext_lazy("an hour"),
    "8": gettext_lazy("8 hours"),
    "24": gettext_lazy("a day"),
    "168": gettext_lazy("a week"),
}


class RuleForm(OfCluster, forms.ModelForm):  # type: ignore[type-arg]
    """A rule; its thresholds are in the unit of what it watches, which is shown beside them."""

    class Meta:
        model = AlertRule
        fields = [*columns_of(AlertRule), "channels"]
        field_classes = numbers_of(AlertRule)
        labels = {
            "kind": gettext_lazy("Watches"),
            "clears_at": gettext_lazy("Is good again at"),
            "for_s": gettext_lazy("Fires after, s"),
            "resolve_s": gettext_lazy("Is over after, s"),
        }
        help_texts = {
            "threshold": gettext_lazy("Seconds, a share from 0 to 1, or requests."),
            "clears_at": gettext_lazy("Between the two nothing changes, so that nothing flaps."),
            "for_s": gettext_lazy("So long it must be past the threshold."),
            "resolve_s": gettext_lazy(
                "So long it must be good; longer for what keeps coming back."
            ),
            "channels": gettext_lazy("None chosen: all channels of the cluster."),
        }
        widgets = {"channels": forms.CheckboxSelectMultiple}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field: Any = self.fields["channels"]
        field.queryset = Channel.unscoped.filter(cluster=self.cluster)
        if self.instance.pk:
            del self.fields["kind"]


class ChannelForm(OfCluster, forms.ModelForm):  # type: ignore[type-arg]
    """A channel. Fields of the other way may be empty; the way of a channel cannot change."""

    way = forms.ChoiceField(
        choices=[
            ("webhook", gettext_lazy("webhook: POST to a URL, signed")),
            ("email", gettext_lazy("e-mail")),
        ],
        widget=forms.RadioSelect,
        initial="webhook",
    )
    addresses = WordsField(
        required=False,
        label=gettext_lazy("E-mail addresses"),
        validators=[validate_addresses],
        help_text=gettext_lazy("Separated by commas."),
    )
    alive_every_s = NumberField(
        required=False,
        min_value=60,
        max_value=30 * 86_400,
        label=gettext_lazy("Sign of life every, s"),
        help_text=gettext_lazy("Sent even if nothing fires, so that missing messages are noticed."),
    )

    class Meta:
        model = Channel
        fields = [
            "name", "way", "url", "addresses", "least_severity", "send_resolved", "alive_every_s",
            "enabled",
        ]  # fmt: skip
        labels = {
            "url": gettext_lazy("URL"),
            "least_severity": gettext_lazy("Notified of"),
            "send_resolved": gettext_lazy("Also when an alert is over"),
        }
        help_texts = {
            "url": gettext_lazy("A public address; others must be allowed by an administrator."),
            "least_severity": gettext_lazy("Of warnings and what is critical, or of that alone."),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk:
            del self.fields["way"]
            del self.fields["url" if self.instance.way == Channel.Way.EMAIL else "addresses"]


class SilenceForm(OfCluster, forms.Form):
    """A silence that begins now."""

    rule = forms.ModelChoiceField(
        queryset=AlertRule.objects.none(),
        required=False,
        empty_label=gettext_lazy("all rules"),
    )
    subject = forms.CharField(
        required=False,
        max_length=SUBJECT_LENGTH,
        help_text=gettext_lazy("A node, a link, … as the alert names it; blank: all."),
    )
    hours = forms.ChoiceField(choices=list(DURATIONS.items()), label=gettext_lazy("For"))
    comment = forms.CharField(required=False, max_length=500)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field: Any = self.fields["rule"]
        field.queryset = AlertRule.unscoped.filter(cluster=self.cluster)

    def row_fields(self) -> dict[str, Any]:
        """Arguments for the service."""
        given = dict(self.cleaned_data)
        starts_at = timezone.now()
        ends_at = starts_at + timedelta(hours=int(given.pop("hours")))
        return {**given, "starts_at": starts_at, "ends_at": ends_at}


class AlertFilter(ListFilter):
    """Filters of the list of alerts."""

    cluster = CLUSTER_FILTER()
    state = django_filters.ChoiceFilter(
        empty_label=gettext_lazy("open"),
        choices=[
            ("firing", gettext_lazy("firing")),
            ("pending", gettext_lazy("pending")),
            ("resolved", gettext_lazy("over")),
        ],
    )

    def filter_queryset(self, queryset: QuerySet[Alert]) -> QuerySet[Alert]:
        """Alerts in the chosen state; without one, open alerts."""
        found = super().filter_queryset(queryset)
        return found if self.form.cleaned_data.get("state") else found.filter(state__in=OPEN)


class RuleFilter(ListFilter):
    """Filters of the list of rules."""

    cluster = CLUSTER_FILTER()


class _ChannelField(django_filters.fields.ModelChoiceField):  # type: ignore[misc]
    def label_from_instance(self, obj: Channel) -> str:
        return f"{obj} · {obj.cluster}"


class _ChannelFilter(django_filters.ModelChoiceFilter):  # type: ignore[misc]
    field_class = _ChannelField


class DeliveryFilter(ListFilter):
    """Filters of the log of deliveries."""

    channel = _ChannelFilter(
        queryset=lambda request: Channel.objects.within(request).select_related("cluster"),
        empty_label=gettext_lazy("all"),
    )


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
    messages.success(request, _("Notifications are sent again."))
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
