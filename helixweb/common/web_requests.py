"""Counts the requests that this process answers, for /metrics."""

import time
from typing import Any

from django.http import HttpRequest, HttpResponseBase
from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics

_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"})
# Not the process's default: what other libraries count there is no part of our page.
disable_created_metrics()  # type: ignore[no-untyped-call]
REGISTRY = CollectorRegistry()
_REQUESTS = Counter(
    "helix_web_requests",
    "Requests answered by this process",
    ["method", "status"],
    registry=REGISTRY,
)
_SECONDS = Histogram(
    "helix_web_request_seconds",
    "Until an answer begins, streams included",
    registry=REGISTRY,
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)


def count_requests(get_response: Any) -> Any:
    """Middleware: what a view raises is an answer by then."""

    def answer(request: HttpRequest) -> HttpResponseBase:
        began_s = time.perf_counter()
        response: HttpResponseBase = get_response(request)
        known = request.method if request.method in _METHODS else "other"
        _REQUESTS.labels(known, str(response.status_code)).inc()
        _SECONDS.observe(time.perf_counter() - began_s)
        return response

    return answer
