"""`/readyz` for load balancers and probes; `/join.sh` for machines that join."""

from typing import Any

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET
from drf_spectacular.utils import extend_schema
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.request import Request
from rest_framework.views import APIView

from helixweb.access.needs import VIEWER, needs
from helixweb.access.scope import WHOLE_SITE
from helixweb.common.metrics import metrics_page
from helixweb.operations import join_script as joining
from helixweb.operations.health import site_health, status_of
from runtime.protocol.exposition import CONTENT_TYPE


@login_not_required
@never_cache
@require_GET
def readyz(request: HttpRequest) -> JsonResponse:
    """The database answers and is migrated; `checks` tells of the other parts too."""
    checks = site_health(timezone.now())
    status = status_of(checks)
    content = {"status": status, "checks": checks}
    return JsonResponse(content, status=200 if status == "ok" else 503)


@login_not_required
@never_cache
@require_GET
def join_script(request: HttpRequest) -> HttpResponse:
    """A shell script that installs the agent and joins; it holds no secret."""
    return HttpResponse(joining.join_script(), content_type="text/x-shellscript; charset=utf-8")


@login_not_required
@require_GET
def join_source(request: HttpRequest) -> HttpResponse:
    """The source of this version, which `join.sh` installs; public, as its licence is."""
    return HttpResponse(joining.source_archive(), content_type="application/gzip")


_LOOPBACK = frozenset({"127.0.0.1", "::1"})
_PASSED_ON = ("Forwarded", "X-Forwarded-For", "X-Real-Ip", "Via")


class _Whatever(BaseContentNegotiation):
    """Scrapers accept formats that we do not speak; they read ours as well."""

    def select_parser(self, request: Request, parsers: Any) -> Any:
        return parsers[0]

    def select_renderer(self, request: Request, renderers: Any, format_suffix: Any = None) -> Any:
        return renderers[0], renderers[0].media_type


@needs(VIEWER)
class MetricsView(APIView):
    """Rows of clusters that the user may not see are left out; a program of this machine that may
    ask without a key reads all."""

    content_negotiation_class = _Whatever

    def get_permissions(self) -> Any:
        if settings.HELIX_METRICS_ON_LOOPBACK and _is_local(self.request):
            return []
        return super().get_permissions()

    @extend_schema(exclude=True)
    def get(self, request: Request) -> HttpResponse:
        """In Prometheus' text format."""
        is_of_person = request.user.is_authenticated  # else a program of this machine
        page = metrics_page(timezone.now(), request if is_of_person else WHOLE_SITE)
        return HttpResponse(
            page, headers={"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store"}
        )


def _is_local(request: Any) -> bool:
    """Whether a program of this machine asks, and no proxy on it passes on what another does."""
    if any(name in request.headers for name in _PASSED_ON):
        return False
    return request.META.get("REMOTE_ADDR") in _LOOPBACK
