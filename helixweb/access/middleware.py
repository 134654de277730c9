"""Pages pass the gate before their view is called; REST views ask it themselves."""

from typing import Any

from django.http import HttpRequest, HttpResponseBase
from rest_framework.views import APIView

from helixweb.access import gate
from helixweb.access.sessions import keep_within_time
from helixweb.common.middleware import LoginRequired


class AccessControl(LoginRequired):
    """Who is not logged in goes to log in; who may not do it is refused."""

    def process_view(
        self, request: HttpRequest, view_func: Any, view_args: Any, view_kwargs: Any
    ) -> HttpResponseBase | None:
        if request.user.is_authenticated:
            keep_within_time(request)
        refusal = super().process_view(request, view_func, view_args, view_kwargs)
        if refusal is not None or not request.user.is_authenticated:
            return refusal
        is_rest = isinstance(getattr(view_func, "cls", None), type) and issubclass(
            view_func.cls, APIView
        )
        if not is_rest and getattr(view_func, "login_required", True):
            gate.admit(request)
        return None
