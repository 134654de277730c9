"""The doors of agents and coordinators; they dial out, so this is all they need of the web.

Bodies are the messages of runtime.protocol.control.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

from django.http import HttpRequest, HttpResponseBase
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from pydantic import BaseModel
from rest_framework.permissions import AllowAny
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.throttling import AnonRateThrottle, SimpleRateThrottle
from rest_framework.views import APIView

from helixweb.common.actor import acting_for_site
from helixweb.common.rest.events import EventStreamRenderer
from helixweb.common.rest.views import RestView
from helixweb.deployment.messages import read_message
from helixweb.deployment.node_log import record_log
from helixweb.deployment.process_authentication import (
    IsCoordinator,
    IsNode,
    ProcessAuthentication,
)
from helixweb.deployment.profiling import follow_profiling
from helixweb.deployment.services import arriving, desired, observing, weight_peers
from helixweb.deployment.streams import ReadState, at_default, desired_stream, unset_of
from helixweb.inventory.models import Coordinator, Node
from helixweb.inventory.services.endpoint_claims import is_of_this_machine
from helixweb.inventory.services.reachability import follow_reach
from runtime.protocol.checkpoint_looks import LOOKS_PARAMETER
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
from runtime.protocol.weight_access import WeightPeers

ProcessT = TypeVar("ProcessT", Node, Coordinator)


_LOOKS = OpenApiParameter(
    LOOKS_PARAMETER, OpenApiTypes.BOOL, description="The agent takes orders to look at checkpoints."
)


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
    return Response(message.model_dump(mode="json", exclude=unset_of(message)), status=status)


def answer_heartbeat(reply: HeartbeatReply) -> Response:
    """Without what is unset: processes of an earlier release refuse fields they do not know."""
    unset: dict[str, Any] = dict.fromkeys(at_default(reply, "to_reach", "to_measure"), True)
    if reply.profile is not None:
        unset["profile"] = at_default(reply.profile, "engine")
    return Response(reply.model_dump(mode="json", exclude=unset))


class RegisterView(RestView):
    """Admits an agent or a coordinator with a join token."""

    authentication_classes = []
    permission_classes = [AllowAny]
    throttle_classes = [JoinThrottle]

    @acting_for_site()
    def dispatch(self, request: HttpRequest, *args: Any, **named: Any) -> HttpResponseBase:
        return super().dispatch(request, *args, **named)

    @extend_schema(request=RegisterRequest, responses={201: RegisterReply}, tags=["processes"])
    def post(self, request: Request) -> Response:
        message = read_message(RegisterRequest, request)
        reply = arriving.admit(
            message, now=timezone.now(), from_this_machine=is_of_this_machine(request)
        )
        return answer(reply, status=201)


class ProcessView(APIView):
    """With the credential of a node or a coordinator."""

    authentication_classes = [ProcessAuthentication]

    @acting_for_site()
    def dispatch(self, request: HttpRequest, *args: Any, **named: Any) -> HttpResponseBase:
        return super().dispatch(request, *args, **named)


class IdentityView(ProcessView):
    """A restarted process says what it is and where it listens."""

    permission_classes = [IsNode | IsCoordinator]

    @extend_schema(request=AgentIdentity, responses={204: None}, tags=["processes"])
    def put(self, request: Request) -> Response:
        identity = read_message(AgentIdentity, request)
        arriving.take_identity(
            cast(Node | Coordinator, request.auth),
            identity,
            now=timezone.now(),
            from_this_machine=is_of_this_machine(request),
        )
        return Response(status=204)


class AgentView(ProcessView):
    permission_classes = [IsNode]


class AgentDesiredView(AgentView):
    """What this node shall run."""

    @extend_schema(parameters=[_LOOKS], responses=DesiredState, tags=["processes"])
    def get(self, request: Request) -> Response:
        return answer(desired.desired_state(node_of(request), takes_looks=takes_looks(request)))


class HeartbeatView(AgentView):
    """What this node does run."""

    @extend_schema(request=Heartbeat, responses=HeartbeatReply, tags=["processes"])
    def post(self, request: Request) -> Response:
        heartbeat, now = read_message(Heartbeat, request), timezone.now()
        node = node_of(request)
        heard_at = node.last_seen_at
        generation = observing.record_heartbeat(node, heartbeat, now=now)
        order = follow_profiling(node, heartbeat.profiling, now=now)
        to_reach, to_measure = follow_reach(node, heartbeat.reach, heard_at=heard_at, now=now)
        return answer_heartbeat(
            HeartbeatReply(
                generation=generation, profile=order, to_reach=to_reach, to_measure=to_measure
            )
        )


class WeightPeersView(AgentView):
    """Agents that may have tensors which this node needs."""

    @extend_schema(responses=WeightPeers, tags=["processes"])
    def get(self, request: Request) -> Response:
        return answer(weight_peers.weight_peers(node_of(request), now=timezone.now()))


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

    @extend_schema(
        parameters=[_LOOKS],
        responses={(200, "text/event-stream"): OpenApiTypes.STR},
        tags=["processes"],
    )
    def get(self, request: Request) -> HttpResponseBase:
        node = node_of(request)
        decide = partial(desired.desired_state, takes_looks=takes_looks(request))
        return desired_stream(node.topic, follow(node, decide))


class CoordinatorView(ProcessView):
    permission_classes = [IsCoordinator]


class CoordinatorDesiredView(CoordinatorView):
    """What the coordinator shall serve, and to whom."""

    @extend_schema(responses=CoordinatorDesired, tags=["processes"])
    def get(self, request: Request) -> Response:
        return answer(desired.coordinator_desired(coordinator_of(request)))


class ReportView(CoordinatorView):
    """What the coordinator measures, about once a second."""

    @extend_schema(request=CoordinatorReport, responses=HeartbeatReply, tags=["processes"])
    def post(self, request: Request) -> Response:
        report, now = read_message(CoordinatorReport, request), timezone.now()
        coordinator = coordinator_of(request)
        heard_at = coordinator.last_seen_at
        generation = observing.record_report(coordinator, report, now=now)
        to_reach, to_measure = follow_reach(coordinator, report.reach, heard_at=heard_at, now=now)
        return answer_heartbeat(
            HeartbeatReply(generation=generation, to_reach=to_reach, to_measure=to_measure)
        )


class CoordinatorStreamView(CoordinatorView):
    """The coordinator's desired state now and at every change, as `event: desired`."""

    renderer_classes = [JSONRenderer, EventStreamRenderer]

    @extend_schema(responses={(200, "text/event-stream"): OpenApiTypes.STR}, tags=["processes"])
    def get(self, request: Request) -> HttpResponseBase:
        coordinator = coordinator_of(request)
        return desired_stream(
            coordinator.topic,
            follow(coordinator, desired.coordinator_desired),
        )


def node_of(request: Request) -> Node:
    """The node whose credential was sent; IsNode has seen to it."""
    return cast(Node, request.auth)


def takes_looks(request: Request) -> bool:
    """True if the agent knows orders to look at checkpoints."""
    return request.query_params.get(LOOKS_PARAMETER) == "true"


def coordinator_of(request: Request) -> Coordinator:
    """The coordinator whose credential was sent; IsCoordinator has seen to it."""
    return cast(Coordinator, request.auth)


def follow(process: ProcessT, decide: Callable[[ProcessT], BaseModel]) -> ReadState:
    """Reads the state of `process` anew; None once its credential is no longer its own."""

    @acting_for_site()
    def read() -> BaseModel | None:
        same = (
            type(process)
            ._default_manager.select_related("cluster")
            .filter(pk=process.pk, credential_hash=process.credential_hash)
        )
        row = same.first()
        return None if row is None else decide(row)

    return read
