"""The doors of agents and coordinators; they dial out, so this is all they need of the web.

Bodies are the messages of runtime.protocol.control.
"""

from collections.abc import Callable
from typing import TypeVar, cast

from django.http import HttpResponseBase
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from pydantic import BaseModel
from rest_framework.permissions import AllowAny
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.throttling import AnonRateThrottle, SimpleRateThrottle
from rest_framework.views import APIView

from helixweb.common.rest.events import EventStreamRenderer
from helixweb.common.rest.views import RestView
from helixweb.deployment import services
from helixweb.deployment.messages import read_message
from helixweb.deployment.node_log import record_log
from helixweb.deployment.process_authentication import (
    IsCoordinator,
    IsNode,
    ProcessAuthentication,
)
from helixweb.deployment.profiling import follow_profiling
from helixweb.deployment.pushing import process_topic
from helixweb.deployment.streams import ReadState, desired_stream
from helixweb.inventory.models import Coordinator, Node
from runtime.protocol.control import (
    AgentIdentity,
    CoordinatorDesired,
    CoordinatorReport,
    DesiredState,
    Heartbeat,
    HeartbeatReply,
    RegisterReply,
    RegisterRequest,
)
from runtime.protocol.node_log import LogBatch

ProcessT = TypeVar("ProcessT", Node, Coordinator)


class JoinThrottle(AnonRateThrottle):
    """Join tokens cannot be guessed; this only keeps a loop from filling the database's time."""

    scope = "join"
    rate = "240/min"


class LogThrottle(SimpleRateThrottle):
    """An agent tells its log every few seconds; more often is a fault, or worse."""

    scope = "node-log"
    rate = "60/min"

    def get_cache_key(self, request: Request, view: APIView) -> str:
        return f"throttle-node-log-{node_of(request).pk}"


def answer(message: BaseModel, status: int = 200) -> Response:
    return Response(message.model_dump(mode="json"), status=status)


class RegisterView(RestView):
    """Admits an agent or a coordinator with a one-time join token."""

    authentication_classes = []
    permission_classes = [AllowAny]
    throttle_classes = [JoinThrottle]

    @extend_schema(request=RegisterRequest, responses={201: RegisterReply}, tags=["processes"])
    def post(self, request: Request) -> Response:
        message = read_message(RegisterRequest, request)
        return answer(services.admit(message, now=timezone.now()), status=201)


class ProcessView(APIView):
    """With the credential of a node or a coordinator."""

    authentication_classes = [ProcessAuthentication]


class IdentityView(ProcessView):
    """A restarted process says what it is and where it listens."""

    permission_classes = [IsNode | IsCoordinator]

    @extend_schema(request=AgentIdentity, responses={204: None}, tags=["processes"])
    def put(self, request: Request) -> Response:
        identity = read_message(AgentIdentity, request)
        services.take_identity(cast(Node | Coordinator, request.auth), identity, now=timezone.now())
        return Response(status=204)


class AgentView(ProcessView):
    permission_classes = [IsNode]


class AgentDesiredView(AgentView):
    """What this node shall run."""

    @extend_schema(responses=DesiredState, tags=["processes"])
    def get(self, request: Request) -> Response:
        return answer(services.desired_state(node_of(request)))


class HeartbeatView(AgentView):
    """What this node does run."""

    @extend_schema(request=Heartbeat, responses=HeartbeatReply, tags=["processes"])
    def post(self, request: Request) -> Response:
        heartbeat, now = read_message(Heartbeat, request), timezone.now()
        generation = services.record_heartbeat(node_of(request), heartbeat, now=now)
        order = follow_profiling(node_of(request), heartbeat.profiling, now=now)
        return answer(HeartbeatReply(generation=generation, profile=order))


class LogView(AgentView):
    """What this node's agent and stage logged lately."""

    throttle_classes = [LogThrottle]

    @extend_schema(request=LogBatch, responses={204: None}, tags=["processes"])
    def post(self, request: Request) -> Response:
        record_log(node_of(request), read_message(LogBatch, request))
        return Response(status=204)


class AgentStreamView(AgentView):
    """The node's desired state now and at every change, as `event: desired`."""

    renderer_classes = [JSONRenderer, EventStreamRenderer]

    @extend_schema(responses={(200, "text/event-stream"): OpenApiTypes.STR}, tags=["processes"])
    def get(self, request: Request) -> HttpResponseBase:
        node = node_of(request)
        return desired_stream(process_topic(node), follow(node, services.desired_state))


class CoordinatorView(ProcessView):
    permission_classes = [IsCoordinator]


class CoordinatorDesiredView(CoordinatorView):
    """What the coordinator shall serve, and to whom."""

    @extend_schema(responses=CoordinatorDesired, tags=["processes"])
    def get(self, request: Request) -> Response:
        return answer(services.coordinator_desired(coordinator_of(request)))


class ReportView(CoordinatorView):
    """What the coordinator measures, about once a second."""

    @extend_schema(request=CoordinatorReport, responses=HeartbeatReply, tags=["processes"])
    def post(self, request: Request) -> Response:
        report = read_message(CoordinatorReport, request)
        generation = services.record_report(coordinator_of(request), report, now=timezone.now())
        return answer(HeartbeatReply(generation=generation))


class CoordinatorStreamView(CoordinatorView):
    """The coordinator's desired state now and at every change, as `event: desired`."""

    renderer_classes = [JSONRenderer, EventStreamRenderer]

    @extend_schema(responses={(200, "text/event-stream"): OpenApiTypes.STR}, tags=["processes"])
    def get(self, request: Request) -> HttpResponseBase:
        coordinator = coordinator_of(request)
        return desired_stream(
            process_topic(coordinator),
            follow(coordinator, services.coordinator_desired),
        )


def node_of(request: Request) -> Node:
    """The node whose credential was sent; IsNode has seen to it."""
    return cast(Node, request.auth)


def coordinator_of(request: Request) -> Coordinator:
    """The coordinator whose credential was sent; IsCoordinator has seen to it."""
    return cast(Coordinator, request.auth)


def follow(process: ProcessT, decide: Callable[[ProcessT], BaseModel]) -> ReadState:
    """Reads the state of `process` anew; None once its credential is no longer its own."""

    def read() -> BaseModel | None:
        same = (
            type(process)
            ._default_manager.select_related("cluster")
            .filter(pk=process.pk, credential_hash=process.credential_hash)
        )
        row = same.first()
        return None if row is None else decide(row)

    return read
