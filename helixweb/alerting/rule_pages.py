"""Pages of rules: the list, and the form of one."""

from typing import Any

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.cache import never_cache

from helixweb.access.needs import VIEWER, needs
from helixweb.alerting.forms import RuleForm
from helixweb.alerting.kinds import DEFAULTS, Kind
from helixweb.alerting.models import AlertRule
from helixweb.alerting.views import AlertingPages
from helixweb.common.queries import query_id
from helixweb.inventory.models import Cluster

PER_PAGE = 50


@needs(VIEWER)
@never_cache
def rules(request: HttpRequest) -> HttpResponse:
    """`?cluster=`: of one; a new cluster gets the usual ones when it is first looked at."""
    rows = AlertRule.objects.within(request).select_related("cluster").prefetch_related("channels")
    rows = rows.order_by("cluster__name", "name")
    chosen = query_id(request, "cluster")
    if chosen:
        rows = rows.filter(cluster=chosen)
    context = {
        "section": "alerts",
        "clusters": Cluster.objects.within(request),
        "chosen": chosen,
        "page": Paginator(rows, PER_PAGE).get_page(request.GET.get("page")),
    }
    return render(request, "alerting/rules.html", context)


class RulePages(AlertingPages):
    """Rules; a new one begins as the usual rule about lost nodes."""

    what, model, form = gettext_lazy("alert rule"), AlertRule, RuleForm
    intros = {
        "edit": gettext_lazy("Watches: %(kind)s."),
        "delete": gettext_lazy(
            "Its alerts are forgotten, also those that fire, and no notifications are sent."
        ),
    }

    def list_place(self, cluster: Cluster) -> tuple[str, str]:
        return reverse("alert-rules"), _("Alert rules")

    def values_of(self, row: AlertRule) -> dict[str, Any]:
        return {"kind": row.get_kind_display()}

    def initial_of_new(self, cluster: Cluster) -> dict[str, Any]:
        return {**DEFAULTS[Kind.NODE_LOST].columns, "kind": Kind.NODE_LOST}
