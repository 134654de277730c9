"""The page of one incumbent: the placement a search had at that moment."""

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_GET

from helixweb.planning.incumbent_view import incumbent_view
from helixweb.planning.models import Incumbent

NODES_PER_PAGE = 100


@require_GET
def incumbent(request: HttpRequest, pk: int, incumbent_pk: int) -> HttpResponse:
    """Its layers and its flow, and how it differs from the better placement before it.

    `?page=` of its nodes.
    """
    row = get_object_or_404(
        Incumbent.objects.select_related("run__cluster", "run__model").defer("run__problem"),
        pk=incumbent_pk,
        run=pk,
    )
    view = incumbent_view(row)
    better = Incumbent.objects.filter(run=pk).defer("placement", "components")
    context = {
        "incumbent": row,
        "run": row.run,
        "view": view,
        "page": Paginator(view.nodes, NODES_PER_PAGE).get_page(request.GET.get("page")),
        "earlier": better.filter(pk__lt=row.pk).order_by("-pk").first(),
        "later": better.filter(pk__gt=row.pk).order_by("pk").first(),
    }
    return render(request, "planning/incumbent.html", context)
