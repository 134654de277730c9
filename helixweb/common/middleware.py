"""Who acts, and in which language and zone pages speak."""

from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.utils import timezone

from helixweb.common.actor import acting
from helixweb.common.languages import speaking
from helixweb.common.zones import zone_of


def remember_reader(get_response: Any) -> Any:
    """Lets services ask who acts (see `actor.py`), and pages speak the reader's language
    and show times of the reader's zone."""

    def answer(request: HttpRequest) -> HttpResponseBase:
        with acting(request), timezone.override(zone_of(request)), speaking(request):
            response: HttpResponseBase = get_response(request)
            return response

    return answer
