"""GET /metrics, for Prometheus: with an API key that may read, or from this machine alone."""

from typing import Any

from django.conf import settings
from django.http import HttpResponse
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.request import Request
from rest_framework.views import APIView

from helixweb.access.needs import VIEWER, needs
from helixweb.access.scope import WHOLE_SITE
from helixweb.common.metrics import metrics_page
from runtime.protocol.exposition import CONTENT_TYPE

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
