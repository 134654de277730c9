"""Ids of requests: the client's `X-Request-ID`, or a new one.

It is in the answer's header, in problem documents, in log lines and in the change log.
"""

import logging
from typing import Any

from django.http import HttpRequest, HttpResponseBase

from runtime.protocol.logs import HEADER, REQUEST_ID, request_id_or_new


def request_id_of(request: Any) -> str:
    """The id of a request that has passed the middleware."""
    return str(getattr(request, "request_id", ""))


def give_request_id(get_response: Any) -> Any:
    """Middleware: gives requests an id; a client's id is used if it is safe to log."""

    def answer(request: HttpRequest) -> HttpResponseBase:
        taken = request_id_or_new(request.headers.get(HEADER))
        request.request_id = taken  # type: ignore[attr-defined]
        token = REQUEST_ID.set(taken)
        try:
            response: HttpResponseBase = get_response(request)
        finally:
            REQUEST_ID.reset(token)
        response[HEADER] = taken
        return response

    return answer


class WithRequestId(logging.Filter):
    """Lines written while a request is answered carry its id; others a dash."""

    def filter(self, record: logging.LogRecord) -> bool:
        if not hasattr(record, "request_id"):  # else its writer has set it
            record.request_id = REQUEST_ID.get()
        return True
