"""The event stream of pages."""

from django.http import HttpRequest, HttpResponseBase
from rest_framework.exceptions import ParseError

from helixweb.access.needs import OWN, needs
from helixweb.access.roles_of_holders import topic_of
from helixweb.access.topics import unheard
from helixweb.common.broadcaster import Ending, latest_place
from helixweb.common.open_streams import OPEN_STREAMS
from helixweb.common.sse import event_stream


@needs(OWN)
def events(request: HttpRequest) -> HttpResponseBase:
    """`?topics=a,b`: one stream a page; it ends when one's roles change, and is asked for anew."""
    user_id = int(request.user.pk or 0)
    OPEN_STREAMS.check(user_id)  # pages that were refused ask without topics when they may
    topics = [word for word in request.GET.get("topics", "").split(",") if word]
    began = latest_place()  # before it is asked what may be heard
    refused = unheard(topics, request)
    if not topics or refused:
        raise ParseError(
            "Name the topics of rows that you may see: ?topics=cluster:1,plan-run:2; "
            f"not {', '.join(refused)[:200] or 'none'}"
        )
    return event_stream(request, topics, ending=Ending(topic=topic_of(user_id), since=began))
