"""Everything asks for a log-in unless it says otherwise; parts of pages ask for it as pages do."""

from typing import Any

from asgiref.sync import iscoroutinefunction
from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.utils import timezone
from django.utils.decorators import sync_and_async_middleware

from helixweb.common.actor import acting
from helixweb.common.languages import speaking
from helixweb.common.zones import zone_of


class LoginRequired(LoginRequiredMiddleware):
    """Django's, except that htmx is told to reload the page: it would swap in the log-in form."""

    def handle_no_permission(  # type: ignore[override]  # Django promises a redirect for no reason
        self, request: HttpRequest, view_func: Any
    ) -> HttpResponseBase:
        if request.headers.get("HX-Request") == "true":
            return HttpResponse(status=401, headers={"HX-Refresh": "true"})
        return super().handle_no_permission(request, view_func)


@sync_and_async_middleware
def remember_reader(get_response: Any) -> Any:
    """Lets services ask who acts (see `actor.py`), and pages speak the reader's language
    and show times of the reader's zone."""
    if iscoroutinefunction(get_response):

        async def answer_async(request: HttpRequest) -> HttpResponseBase:
            with acting(request), timezone.override(zone_of(request)), speaking(request):
                response: HttpResponseBase = await get_response(request)
                return response

        return answer_async

    def answer(request: HttpRequest) -> HttpResponseBase:
        with acting(request), timezone.override(zone_of(request)), speaking(request):
            response: HttpResponseBase = get_response(request)
            return response

    return answer
