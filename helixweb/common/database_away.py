"""Error handler: answers 503 with Retry-After, not 500, while the database is unavailable."""

import sys

from django.http import HttpRequest, HttpResponse
from django.template import loader
from django.views.defaults import server_error

from helixweb.common.problems import DatabaseAway, is_database_away, plain_answer


def answer_fault(request: HttpRequest) -> HttpResponse:
    """Django's `handler500`: called while the exception is handled."""
    error = sys.exc_info()[1]
    if not is_database_away(error):
        return server_error(request)
    answer = plain_answer(request.path, DatabaseAway())
    if not request.path.startswith("/api/"):
        answer.content = loader.get_template(
            "503.html"
        ).render()  # without a context that reads rows
        answer["Content-Type"] = "text/html; charset=utf-8"
    return answer
