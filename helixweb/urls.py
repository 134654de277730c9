"""The URL map: pages at the root, the REST API under /api/v1."""

from django.urls import URLPattern, URLResolver, include, path, re_path
from drf_spectacular.views import SpectacularAPIView

from helixweb.access.needs import OWN, VIEWER, needs
from helixweb.common.api import UnknownAddressView
from helixweb.common.rest.docs import api_docs

handler500 = "helixweb.common.database_away.answer_fault"
# Most requests are of agents, to deployment's first addresses; each pattern before theirs is tried.
API_APPS = ("deployment", "access", "inventory", "planning", "monitoring", "alerting")

_API: list[URLResolver | URLPattern] = [
    *(path("", include(f"helixweb.{app}.api_urls")) for app in API_APPS),
    re_path("", needs(VIEWER, VIEWER)(UnknownAddressView).as_view(), name="api-unknown"),
]

urlpatterns = [
    path("api/v1/", include(_API)),
    path("", include("helixweb.common.urls")),
    path("", include("helixweb.operations.urls")),
    *(path("", include(f"helixweb.{app}.urls")) for app in API_APPS),
    path("api/docs/", needs(OWN)(api_docs), name="api-docs"),
    path("api/schema/", needs(OWN)(SpectacularAPIView.as_view()), name="schema"),
]
