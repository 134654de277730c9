"""What is answered while the database does not: 503 and when to ask again, not 500."""

import sys
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template import loader
from django.views.defaults import server_error

from helixweb.common.problems import CONTENT_TYPE, DatabaseAway, is_database_away, problem


def answer_fault(request: HttpRequest) -> HttpResponse:
    """Django's `handler500`: called while the exception is handled that nobody else did."""
    error = sys.exc_info()[1]
    if not is_database_away(error):
        return server_error(request)
    headers = {"Retry-After": str(DatabaseAway.wait)}
    if request.path.startswith("/api/"):
        content: dict[str, Any] = problem(DatabaseAway())
        return JsonResponse(content, status=503, headers=headers, content_type=CONTENT_TYPE)
    page = loader.get_template("503.html").render()  # not what wants to know who asks
    return HttpResponse(page, status=503, headers=headers)
