"""Pages of rules: the list, and the form of one."""

from typing import Any

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods

from helixweb.alerting import services
from helixweb.alerting.forms import RuleForm
from helixweb.alerting.kinds import DEFAULTS, Kind
from helixweb.alerting.models import AlertRule
from helixweb.common.queries import query_id
from helixweb.inventory.models import Cluster
from helixweb.inventory.views.editing import Page, delete_page, edit_page

PER_PAGE = 50


@require_GET
@never_cache
def rules(request: HttpRequest) -> HttpResponse:
    """`?cluster=`: of one; a new cluster gets the usual ones when it is first looked at."""
    rows = AlertRule.objects.select_related("cluster").prefetch_related("channels")
    rows = rows.order_by("cluster__name", "name")
    chosen = query_id(request, "cluster")
    if chosen:
        rows = rows.filter(cluster=chosen)
    context = {
        "section": "alerts",
        "clusters": Cluster.objects.all(),
        "chosen": chosen,
        "page": Paginator(rows, PER_PAGE).get_page(request.GET.get("page")),
    }
    return render(request, "alerting/rules.html", context)


def _page(title: str, submit: str, intro: str = "") -> Page:
    return Page(
        title=title,
        submit=submit,
        back_url=reverse("alert-rules"),
        back_title=_("Alert rules"),
        intro=intro,
    )


@require_http_methods(["GET", "POST"])
def rule_new(request: HttpRequest, cluster_pk: int) -> HttpResponse:
    """Begins as the usual rule about lost nodes."""
    cluster = get_object_or_404(Cluster, pk=cluster_pk)
    usual = DEFAULTS[Kind.NODE_LOST]
    initial: dict[str, Any] = {
        name: getattr(usual, name)
        for name in ("threshold", "clears_at", "for_s", "resolve_s", "severity")
    }
    initial["kind"] = Kind.NODE_LOST
    form = RuleForm(request.POST or None, cluster=cluster, initial=initial)
    page = _page(_("New alert rule of %(cluster)s") % {"cluster": cluster}, _("Add"))

    def save() -> str:
        services.create_rule(cluster=cluster, **form.row_fields())
        return page.back_url

    return edit_page(request, form, page=page, save=save)


@require_http_methods(["GET", "POST"])
def rule_edit(request: HttpRequest, pk: int) -> HttpResponse:
    """All but what it watches."""
    row = get_object_or_404(AlertRule.objects.select_related("cluster"), pk=pk)
    form = RuleForm(request.POST or None, cluster=row.cluster, instance=row)
    page = _page(
        _("Edit rule %(row)s of %(cluster)s") % {"row": row, "cluster": row.cluster},
        _("Save"),
        _("Watches: %(kind)s.") % {"kind": row.get_kind_display()},
    )

    def save() -> str:
        services.update_rule(row, **form.row_fields())
        return page.back_url

    return edit_page(request, form, page=page, save=save)


@require_http_methods(["GET", "POST"])
def rule_delete(request: HttpRequest, pk: int) -> HttpResponse:
    """Its alerts go with it."""
    row = get_object_or_404(AlertRule, pk=pk)
    page = _page(
        _("Delete rule %(row)s?") % {"row": row},
        _("Delete"),
        _("Its alerts are forgotten, those that fire as well, and nobody is told."),
    )
    return delete_page(request, row, page=page)
