"""The event stream of pages."""

from django.http import HttpRequest, HttpResponseBase

from helixweb.access.needs import OWN, needs
from helixweb.access.topics import listen
from helixweb.common import open_streams
from helixweb.common.sse import event_stream


@needs(OWN)
def events(request: HttpRequest) -> HttpResponseBase:
    """`?topics=a,b`: one stream a page; it ends when one's roles change, and is asked for again."""
    # Pages that were refused ask without topics when they may.
    open_streams.check(int(request.user.pk or 0))
    topics = [word for word in request.GET.get("topics", "").split(",") if word]
    return event_stream(request, topics, ending=listen(request, topics))
