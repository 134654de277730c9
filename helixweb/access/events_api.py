"""Events as they happen: for pages as a stream (SSE), over REST so too or, where streams cannot be
read, by long poll. A user may read only the topics of rows that they may see."""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Any

from asgiref.sync import sync_to_async
from django.apps import apps
from django.http import HttpRequest, HttpResponseBase, StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request

from helixweb.access.needs import OWN, needs
from helixweb.access.roles import NO_ROLE
from helixweb.access.roles_of_holders import topic_of
from helixweb.access.scope import cluster_of, is_still_admitted, rights_of_request
from helixweb.common import broadcaster, open_streams
from helixweb.common.broadcaster import BROADCASTER, Ending, Frame
from helixweb.common.connections import returns_connection
from helixweb.common.event_place import Place
from helixweb.common.queries import parsed_id
from helixweb.common.rest.rendering import JsonRenderer
from helixweb.common.rest.views import RestView
from helixweb.common.serializers import StrictFieldsMixin
from helixweb.common.sse import EventStreamRenderer, counted, event_stream

# Model of the rows that a topic `kind:id` names.
MODELS = {
    "cluster": "inventory.Cluster",
    "metrics": "inventory.Cluster",
    "node": "inventory.Node",
    "plan-run": "planning.PlanRun",
    "model-mix": "planning.ModelMix",
    "deployment": "deployment.Deployment",
}


LONGEST_WAIT_S = 60.0
MAX_TOPICS = 100
# In one answer; the next request gets the rest.
MAX_EVENTS = 1000


def listen(request: HttpRequest, topics: Sequence[str]) -> Ending:
    """The event that ends a stream of these topics. Raises ValidationError for topics that the
    user may not read."""
    began = broadcaster.latest_place()  # before the rights are checked
    refused = unheard(topics, request)
    if not topics or refused:
        message = f"There is no topic {', '.join(refused)[:200]!r}, or you may not read it; "
        message += "name topics of rows that you may see, such as cluster:1,plan-run:2."
        raise ValidationError({"topics": [message]})
    return Ending(topic=topic_of(int(request.user.pk or 0)), since=began)


def unheard(topics: Iterable[str], request: HttpRequest) -> list[str]:
    """Topics that do not exist or that the user may not read at this moment. Checked again during a
    stream, as rights may change."""
    topics = list(topics)
    if not is_still_admitted(request):
        return topics
    rights = rights_of_request(request)
    refused = []
    for topic in topics:
        kind, _, text = topic.partition(":")
        pk = parsed_id(text) if kind in MODELS else None
        cluster = None if pk is None else cluster_of(apps.get_model(MODELS[kind]), pk=pk)
        if cluster is None or (rights.site == NO_ROLE and rights.on(cluster) == NO_ROLE):
            refused.append(topic)
    return refused


class EventQuerySerializer(StrictFieldsMixin, serializers.Serializer[Any]):
    """Which events, after which, and how long to wait for one."""

    topics = serializers.CharField(
        help_text="Of which rows, such as `cluster:1,plan-run:2`: cluster, metrics, node, "
        "plan-run, model-mix or deployment, and the id.",
    )
    after = serializers.CharField(
        required=False,
        help_text="The `after` of the answer before, or the id of an event: those that came since. "
        "Left out: those that come from now on.",
    )
    wait = serializers.FloatField(
        min_value=0,
        max_value=LONGEST_WAIT_S,
        default=0.0,
        help_text="Seconds after which an empty list is answered if nothing has happened.",
    )
    last_event_id = serializers.CharField(
        required=False, help_text="For streams, where a client cannot send Last-Event-ID."
    )

    def validate_topics(self, text: str) -> list[str]:
        topics = [word.strip() for word in text.split(",") if word.strip()]
        if not 1 <= len(topics) <= MAX_TOPICS:
            raise serializers.ValidationError(
                f"There are {len(topics)}; name 1 to {MAX_TOPICS}, such as cluster:1,plan-run:2."
            )
        return topics

    def validate_after(self, text: str) -> Place:
        place = Place.parse(text)
        if place is None:
            raise serializers.ValidationError(
                f"{text[:40]!r} is no place in the events; give the `after` of an answer, or leave "
                "it out."
            )
        return place


class EventSerializer(serializers.Serializer[Any]):
    """Something that happened; `data` says what, as the kind has it."""

    id = serializers.CharField(help_text="For `after`, to go on from here.")
    type = serializers.CharField()
    topic = serializers.CharField()
    data = serializers.DictField()  # type: ignore[assignment]


class EventsSerializer(serializers.Serializer[Any]):
    """What happened, the oldest first, and where to go on."""

    events = EventSerializer(many=True)
    after = serializers.CharField()


@needs(OWN)
class EventsView(RestView):
    """Events of rows that the user may see, until the user's roles change."""

    renderer_classes = [JsonRenderer, EventStreamRenderer]

    def query_parameters(self) -> None:
        """The serializer refuses what is unknown."""

    @extend_schema(
        parameters=[
            EventQuerySerializer,
            OpenApiParameter(
                "Last-Event-ID",
                OpenApiTypes.STR,
                OpenApiParameter.HEADER,
                description="For streams: the id of the last event that was read.",
            ),
        ],
        responses={
            (200, "application/json"): EventsSerializer,
            (200, "text/event-stream"): OpenApiTypes.STR,
        },
    )
    def get(self, request: Request) -> HttpResponseBase:
        """What happens to rows: at once and one by one with `Accept: text/event-stream`, else as a
        list, for which `wait` keeps the answer back until something has happened."""
        asked = EventQuerySerializer(data=request.query_params.dict())
        asked.is_valid(raise_exception=True)
        given = asked.validated_data
        topics = given["topics"]
        ending = listen(request._request, topics)
        if getattr(request.accepted_renderer, "format", "") == EventStreamRenderer.format:
            return event_stream(request._request, topics, ending=ending)
        pieces = _answer(topics, given.get("after") or ending.since, given["wait"], ending)
        if given["wait"]:
            pieces = counted(pieces, open_streams.begin(int(request.user.pk or 0)))
        return StreamingHttpResponse(
            pieces,
            content_type="application/json",
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )


async def _answer(
    topics: Iterable[str], place: Place, longest_s: float, ending: Ending
) -> AsyncGenerator[bytes, None]:
    """The body, once there is an event or the wait is over. No thread waits."""
    frames = await _frames(frozenset(topics), place, longest_s, ending)
    events = [
        {
            "id": str(frame.place),
            "type": frame.event.type,
            "topic": frame.event.topic,
            "data": frame.event.data,
        }
        for frame in frames[:MAX_EVENTS]
    ]
    after = events[-1]["id"] if events else str(place)
    yield json.dumps({"events": events, "after": after}).encode()


async def _frames(
    topics: frozenset[str], place: Place, longest_s: float, ending: Ending
) -> list[Frame]:
    """New events; empty if `ending` came meanwhile, as the reader may no longer see them."""
    since = sync_to_async(returns_connection(broadcaster.frames_since))
    subscription = await BROADCASTER.subscribe(topics | {ending.topic})
    try:
        frames = await since(topics, place)
        if not frames and longest_s:
            try:
                async with asyncio.timeout(longest_s):
                    await subscription.queue.get()
            except TimeoutError:
                return []
            # Read again, with the places of a reader that was at `place`.
            frames = await since(topics, place)
        is_over = await sync_to_async(returns_connection(ending.has_come))()
        return [] if is_over else frames
    finally:
        BROADCASTER.unsubscribe(subscription)


@needs(OWN)
def events(request: HttpRequest) -> HttpResponseBase:
    """`?topics=a,b`: one stream a page; it ends when one's roles change, and is asked for again."""
    # Pages that were refused ask without topics when they may.
    open_streams.check(int(request.user.pk or 0))
    topics = [word for word in request.GET.get("topics", "").split(",") if word]
    return event_stream(request, topics, ending=listen(request, topics))
