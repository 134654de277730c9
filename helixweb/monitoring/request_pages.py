"""Pages of traced requests: the list, and where the time of one went."""

from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from helixweb.monitoring.live_requests import live_requests
from helixweb.monitoring.models import TracedRequest
from helixweb.monitoring.request_filters import RequestFilter
from helixweb.monitoring.request_view import request_view
from helixweb.monitoring.traces import trace_of, traced_requests

REQUESTS_PER_PAGE = 50


@require_GET
@never_cache
def requests(request: HttpRequest) -> HttpResponse:
    """Filters, order and page are in the address; what cannot be read filters nothing.

    Requests that wait or run stand above the list; htmx fetches them alone.
    """
    live = live_requests(now=timezone.now())
    if "HX-Request" in request.headers:
        return render(request, "monitoring/_live_requests.html", {"live": live})
    chosen = RequestFilter(request.GET, queryset=traced_requests())
    page = Paginator(chosen.qs, REQUESTS_PER_PAGE).get_page(request.GET.get("page"))
    context = {
        "section": "requests",
        "form": chosen.form,
        "is_filtered": any(request.GET.get(name) for name in chosen.filters if name != "order"),
        "page": page,
        "live": live,
    }
    return render(request, "monitoring/requests.html", context)


@require_GET
@never_cache
def traced_request(request: HttpRequest, number: str) -> HttpResponse:
    """One request by its 16 hex digits."""
    row = TracedRequest.objects.select_related("cluster").filter(request=number).first()
    if row is None:
        raise Http404(
            _(
                "There is no trace of request %(number)s: it is older than a day, still "
                "runs, or was not among those that its coordinator traced."
            )
            % {"number": number}
        )
    context = {"section": "requests", "row": row, "view": request_view(trace_of(row))}
    return render(request, "monitoring/request.html", context)
