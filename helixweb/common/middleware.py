"""Everything asks for a log-in unless it says otherwise; parts of pages ask for it as pages do."""

from typing import Any

from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.http import HttpRequest, HttpResponse, HttpResponseBase


class LoginRequired(LoginRequiredMiddleware):
    """Django's, except that htmx is told to reload the page: it would swap in the log-in form."""

    def handle_no_permission(  # type: ignore[override]  # Django promises a redirect for no reason
        self, request: HttpRequest, view_func: Any
    ) -> HttpResponseBase:
        if request.headers.get("HX-Request") == "true":
            return HttpResponse(status=401, headers={"HX-Refresh": "true"})
        return super().handle_no_permission(request, view_func)
