"""The HTTP side of event streams."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing

from django.http import HttpRequest, StreamingHttpResponse
from rest_framework.renderers import JSONRenderer

from helixweb.common import broadcaster, open_streams
from helixweb.common.broadcaster import Ending
from helixweb.common.event_place import Place
from helixweb.common.open_streams import OpenStream

# Streams end, as a key or a session may expire meanwhile.
LONGEST_STREAM_S = 3600.0


class EventStreamRenderer(JSONRenderer):
    """Accepts text/event-stream; refusals are still JSON."""

    media_type = "text/event-stream"
    format = "event-stream"


def event_stream(
    request: HttpRequest, topics: Iterable[str], *, ending: Ending
) -> StreamingHttpResponse:
    """`topics` as text/event-stream; honours Last-Event-ID (header, or query after a reload).
    Raises TooManyStreams."""
    text = request.headers.get("Last-Event-ID") or request.GET.get("last_event_id") or ""
    frames = broadcaster.stream(
        topics, place=Place.parse(text), ending=ending, longest_s=LONGEST_STREAM_S
    )
    return stream_response(counted(frames, open_streams.begin(int(request.user.pk or 0))))


def stream_response(frames: AsyncIterator[bytes]) -> StreamingHttpResponse:
    """Frames as text/event-stream, without buffering by proxies."""
    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    return StreamingHttpResponse(frames, content_type="text/event-stream", headers=headers)


async def counted(
    pieces: AsyncGenerator[bytes, None], stream: OpenStream
) -> AsyncGenerator[bytes, None]:
    """Count the stream as open while it is sent."""
    try:
        async with aclosing(pieces):
            async for piece in pieces:
                yield piece
    finally:
        stream.end()
