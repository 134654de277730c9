"""Forms of rules, channels and silences."""

from datetime import timedelta
from typing import Any

import django_filters
from django import forms
from django.db.models import QuerySet
from django.utils import timezone
from django.utils.translation import gettext_lazy

from helixweb.alerting.models import (
    OPEN,
    SUBJECT_LENGTH,
    Alert,
    AlertRule,
    Channel,
    validate_addresses,
)
from helixweb.common.number_field import NumberField
from helixweb.common.pages import ListFilter
from helixweb.inventory.columns import columns_of
from helixweb.inventory.forms import CLUSTER_FILTER, OfCluster, WordsField, numbers_of

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
            "least_severity": gettext_lazy("Is told of"),
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
