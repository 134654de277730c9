"""The page that shows the OpenAPI document, from files of this site alone."""

from django.apps import apps
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

PAGES = "drf_spectacular_sidecar"  # an extra: 2.7 MB that a site without readers does not need


def api_docs(request: HttpRequest) -> HttpResponse:
    """The page of all operations, which users can try out as themselves."""
    return render(request, "common/api_docs.html", {"has_pages": apps.is_installed(PAGES)})
