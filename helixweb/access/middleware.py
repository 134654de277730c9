"""Pages pass the gate before their view is called; REST views ask it themselves."""

from typing import Any

from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from rest_framework.exceptions import APIException

from helixweb.access import gate
from helixweb.access.sessions import keep_within_time
from helixweb.common.pages import by_htmx
from helixweb.common.problems import plain_answer


class AccessControl(LoginRequiredMiddleware):
    """Middleware: redirects anonymous users to the log-in, and refuses users without the right."""

    def handle_no_permission(  # type: ignore[override]  # Django promises a redirect for no reason
        self, request: HttpRequest, view_func: Any
    ) -> HttpResponseBase:
        """Have htmx reload the page: it would put the log-in form into a part of it."""
        if by_htmx(request):
            return HttpResponse(status=401, headers={"HX-Refresh": "true"})
        return super().handle_no_permission(request, view_func)

    def process_view(
        self, request: HttpRequest, view_func: Any, view_args: Any, view_kwargs: Any
    ) -> HttpResponseBase | None:
        if request.user.is_authenticated:
            keep_within_time(request)
        refusal = super().process_view(request, view_func, view_args, view_kwargs)
        if refusal is not None or not request.user.is_authenticated:
            return refusal
        if not hasattr(view_func, "cls") and getattr(view_func, "login_required", True):
            gate.admit(request)
        return None

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Answer in plain text what a page refuses as the REST API does."""
        if isinstance(exception, APIException):
            return plain_answer(request.path, exception)
        return None
