"""The event stream of pages."""

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.views.decorators.http import require_GET

from helixweb.access.roles_of_holders import topic_of
from helixweb.access.topics import unheard
from helixweb.common.sse import event_stream


@require_GET
def events(request: HttpRequest) -> HttpResponseBase:
    """`?topics=a,b`: one stream a page; it ends when one's roles change, and is asked for anew."""
    topics = [word for word in request.GET.get("topics", "").split(",") if word]
    refused = unheard(topics, request)
    if not topics or refused:
        return HttpResponse(
            f"Name the topics of rows that you may see: ?topics=cluster:1,plan-run:2; "
            f"not {', '.join(refused)[:200] or 'none'}",
            status=400,
            content_type="text/plain; charset=utf-8",
        )
    return event_stream(request, topics, until=topic_of(int(request.user.pk or 0)))
