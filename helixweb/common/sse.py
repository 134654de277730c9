"""The HTTP side of event streams."""

from collections.abc import Iterable

from django.http import HttpRequest, StreamingHttpResponse

from helixweb.common import broadcaster
from helixweb.common.event_place import Place

# A key or a session may end by its time meanwhile.
LONGEST_STREAM_S = 3600.0


def event_stream(
    request: HttpRequest, topics: Iterable[str], *, until: str = ""
) -> StreamingHttpResponse:
    """`topics` as text/event-stream; honours Last-Event-ID (header, or query after a reload)."""
    text = request.headers.get("Last-Event-ID") or request.GET.get("last_event_id") or ""
    response = StreamingHttpResponse(
        broadcaster.stream(
            topics, place=Place.parse(text), until=until, longest_s=LONGEST_STREAM_S
        ),
        content_type="text/event-stream",
    )
    response["Cache-Control"] = "no-cache"
    response["X-Accel-Buffering"] = "no"
    return response
