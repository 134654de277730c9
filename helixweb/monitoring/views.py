"""Pages of monitoring."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET


@require_GET
def overview(request: HttpRequest) -> HttpResponse:
    """Where a person lands."""
    return render(request, "monitoring/overview.html")


@require_GET
def monitor(request: HttpRequest) -> HttpResponse:
    """Live metrics of one cluster."""
    return render(request, "monitoring/monitor.html")


@require_GET
def playground(request: HttpRequest) -> HttpResponse:
    """Chat with what is deployed."""
    return render(request, "monitoring/playground.html")
