"""Which traced requests a list shows: the same for the page and the REST API."""

from typing import Any

import django_filters
from django import forms
from django.db.models import QuerySet
from django.utils.translation import gettext_lazy as _

from helixweb.inventory.forms import CLUSTER_FILTER
from helixweb.monitoring.models import TracedRequest
from helixweb.monitoring.traces import COMPLETE, visits

ORDERS = {
    "-arrived_at": _("newest first"),
    "-e2e_s": _("slowest first"),
    "-ttft_s": _("longest TTFT first"),
    "-queue_s": _("longest queued first"),
    "-output_tokens": _("most tokens first"),
}


class RequestFilter(django_filters.FilterSet):  # type: ignore[misc]
    """Filters of requests; every field is optional."""

    cluster = CLUSTER_FILTER()
    node = django_filters.CharFilter(
        method="filter_node", label=_("Node"), help_text=_("whole name of a node on its path")
    )
    outcome = django_filters.ChoiceFilter(
        method="filter_outcome",
        label=_("Ended"),
        empty_label=_("any way"),
        choices=(
            ("complete", _("complete")),
            ("cancelled", _("cancelled by the client")),
            ("failed", _("with an error")),
        ),
    )
    request = django_filters.CharFilter(
        field_name="request", lookup_expr="istartswith", label=_("ID starts with")
    )
    slower_than = django_filters.NumberFilter(
        field_name="e2e_s",
        lookup_expr="gte",
        min_value=0,
        label=_("At least (s)"),
        widget=forms.NumberInput(attrs={"step": "any", "min": "0"}),
    )
    order = django_filters.OrderingFilter(
        fields=[(name.lstrip("-"), name.lstrip("-")) for name in ORDERS],
        choices=list(ORDERS.items()),
        label=_("Order"),
        empty_label=None,
    )

    class Meta:
        model = TracedRequest
        fields: list[str] = []

    def filter_node(
        self, rows: QuerySet[TracedRequest], name: str, value: str
    ) -> QuerySet[TracedRequest]:
        return visits(rows, value.strip())

    def filter_outcome(
        self, rows: QuerySet[TracedRequest], name: str, value: str
    ) -> QuerySet[TracedRequest]:
        ways: dict[str, Any] = {
            "complete": rows.filter(outcome__in=COMPLETE),
            "cancelled": rows.filter(outcome="cancelled"),
            "failed": rows.exclude(outcome__in=[*COMPLETE, "cancelled"]),
        }
        chosen: QuerySet[TracedRequest] = ways[value]
        return chosen
