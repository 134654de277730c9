"""The page that shows the OpenAPI document, from files of this site alone."""

from django.apps import apps
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

PAGES = "drf_spectacular_sidecar"  # an extra: 2.7 MB that a site without readers does not need


def api_docs(request: HttpRequest) -> HttpResponse:
    """Every operation, to be tried out as the user who reads it."""
    return render(request, "common/api_docs.html", {"has_pages": apps.is_installed(PAGES)})
