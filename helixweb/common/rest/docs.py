"""The page that shows the OpenAPI document, from files of this site alone."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET


@require_GET
def api_docs(request: HttpRequest) -> HttpResponse:
    """Every operation with examples, and to be tried out as oneself."""
    return render(request, "common/api_docs.html")
