"""Middleware: sets the actor, the language and the time zone of a request."""

from contextlib import AbstractContextManager
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase
from django.utils import timezone, translation

from helixweb.common.actor import acting
from helixweb.common.zones import zone_of


def remember_reader(get_response: Any) -> Any:
    """Sets the actor for services (see `actor.py`), and makes pages use the reader's language
    and show times of the reader's zone."""

    def answer(request: HttpRequest) -> HttpResponseBase:
        with acting(request), timezone.override(zone_of(request)), speaking(request):
            response: HttpResponseBase = get_response(request)
            return response

    return answer


COOKIE = "language"


def speaking(request: HttpRequest) -> AbstractContextManager[None]:
    """Within, texts are in the reader's language."""
    wanted = request.COOKIES.get(COOKIE, "")
    known = wanted in dict(settings.LANGUAGES)
    return translation.override(wanted if known else settings.LANGUAGE_CODE)
