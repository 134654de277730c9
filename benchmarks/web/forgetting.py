"""Middleware that forgets the JSON of all rows where a request asks for it."""

from typing import Any

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest
from django.utils.decorators import sync_and_async_middleware

from helixweb.common.rest import kept_rows, listing

HEADER = "X-Rows"


@sync_and_async_middleware
def forget_rows(get_response: Any) -> Any:
    """`X-Rows: anew` asks for it."""
    if iscoroutinefunction(get_response):
        return get_response

    def answer(request: HttpRequest) -> Any:
        if request.headers.get(HEADER) == "anew":
            listing.KEPT_ROWS = kept_rows.KeptRows(kept_rows.MOST_BYTES)
        return get_response(request)

    return answer
