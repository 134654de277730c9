"""REST for agents and coordinators; they dial out, so this is all they need of the web.

Bodies are the messages of runtime.protocol.control. Checkpoints of the site's models folder are
served as the hub serves them: a node fetches the tensors of its layers here before it asks the hub.
"""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pydantic
from django.contrib.auth.models import AnonymousUser
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import authentication, exceptions, permissions
from rest_framework.exceptions import NotFound, ParseError, ValidationError
from rest_framework.permissions import AllowAny
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.throttling import AnonRateThrottle, SimpleRateThrottle
from rest_framework.views import APIView

from helixweb.common.auth import bearer
from helixweb.common.problems import TooLarge
from helixweb.common.rest.views import RestView
from helixweb.common.sse import EventStreamRenderer
from helixweb.deployment.models import LIVE, STANDING, Deployment, Profiling
from helixweb.deployment.node_log import record_log
from helixweb.deployment.profiling import follow_profiling
from helixweb.deployment.services import desired, observing
from helixweb.deployment.services.deploying import follow_addresses
from helixweb.deployment.services.observing import Heartbeats
from helixweb.deployment.streams import desired_stream, unset_of
from helixweb.inventory.hub import WHOLE_FILES, commit_of, find_folder, is_served
from helixweb.inventory.models import Coordinator, Node
from helixweb.inventory.services.endpoint_claims import is_of_this_machine
from helixweb.inventory.services.joining import register
from helixweb.inventory.services.presence import (
    authenticate_agent,
    authenticate_agents,
    update_identity,
)
from helixweb.inventory.services.reachability import follow_reach
from runtime.checkpoints.hub_names import SITE, parse_hub_name
from runtime.protocol.checkpoint_looks import LOOKS_PARAMETER
from runtime.protocol.complaints import complaint
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

MessageT = TypeVar("MessageT", bound=pydantic.BaseModel)
SHOWN = 80
# A report about a thousand nodes has a third of it.
MAX_MESSAGE_BYTES = 1_000_000
# Output of engines may contain NUL, which PostgreSQL cannot store.
_NUL = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")


for_processes = partial(extend_schema, tags=["processes"])
_LOOKS = OpenApiParameter(
    LOOKS_PARAMETER, OpenApiTypes.BOOL, description="The agent takes orders to look at checkpoints."
)
_STREAM = {(200, "text/event-stream"): OpenApiTypes.STR}
_RANGE = re.compile(r"bytes=([0-9]{1,18})-([0-9]{1,18})")
_MOST_BYTES = 4 << 20  # of one answer: clients ask for the rest


def read_message(kind: type[MessageT], request: Request) -> MessageT:
    """The request's JSON body as `kind`.

    Raises TooLarge, and DRF's ValidationError with a path per field.
    """
    if len(request.body) > MAX_MESSAGE_BYTES:
        raise TooLarge(
            f"The message has {len(request.body):,} bytes; at most {MAX_MESSAGE_BYTES:,} are read."
        )
    try:
        return kind.model_validate_json(_NUL.sub(rb"\1\\ufffd", request.body), strict=True)
    except pydantic.ValidationError as error:
        problems: dict[str, list[str]] = {}
        for problem in error.errors(include_url=False, include_context=False):
            path = ".".join(str(part) for part in problem["loc"]) or "detail"
            text = complaint(problem)
            if problem["type"] != "missing" and path != "detail":
                text += f" (got {_shown(problem['input'])})"
            problems.setdefault(path, []).append(text)
        raise exceptions.ValidationError(problems) from error


def _shown(value: object) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


def answer(message: pydantic.BaseModel, status: int = 200) -> Response:
    return Response(message.model_dump(mode="json", exclude=unset_of(message)), status=status)


class ProcessAuthentication(authentication.BaseAuthentication):
    """`request.auth` is the Node or Coordinator row."""

    def knows(self, request: Any) -> bool:
        """True if the request has the credential of a process."""
        token = bearer(request)
        return token is not None and authenticate_agent(token) is not None

    def authenticate(self, request: Request) -> tuple[AnonymousUser, Node | Coordinator]:
        token = bearer(request)
        if token is None:
            raise exceptions.NotAuthenticated(
                "Send the credential that registration gave: Authorization: Bearer hlxn_…"
            )
        known = getattr(request, "processes", None)  # of requests that are answered together
        process = authenticate_agent(token) if known is None else known.get(token)
        if process is None:
            raise exceptions.AuthenticationFailed(
                "This credential is unknown; the node was removed or joined again. "
                "Join with a fresh token from the cluster's page."
            )
        return AnonymousUser(), process

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


class ProcessScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """The credential in the OpenAPI document."""

    target_class = ProcessAuthentication
    name = "processCredential"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "bearerFormat": "hlxn_…"}


class IsNode(permissions.BasePermission):
    message = "This is for agents; the credential is a coordinator's."

    def has_permission(self, request: Request, view: APIView) -> bool:
        return isinstance(request.auth, Node)


class IsCoordinator(permissions.BasePermission):
    message = "This is for coordinators; the credential is a node's."

    def has_permission(self, request: Request, view: APIView) -> bool:
        return isinstance(request.auth, Coordinator)


class ProcessView(APIView):
    """With the credential of a node or a coordinator."""

    authentication_classes = [ProcessAuthentication]
    permission_classes: Any = [IsNode | IsCoordinator]

    @property
    def process(self) -> Any:
        """The authenticated Node or Coordinator, which the permissions have checked."""
        return self.request.auth


class AgentView(ProcessView):
    permission_classes = [IsNode]


class CoordinatorView(ProcessView):
    permission_classes = [IsCoordinator]


class JoinThrottle(AnonRateThrottle):
    """Join tokens cannot be guessed; this only keeps a loop from filling the database's time."""

    scope = "join"
    rate = "240/min"


class LogThrottle(SimpleRateThrottle):
    """An agent sends its log every few seconds; more often is a fault, or worse."""

    scope = "node-log"
    rate = "60/min"

    def get_cache_key(self, request: Request, view: Any) -> str:
        return f"throttle-node-log-{view.process.pk}"


class RegisterView(RestView):
    """Admits an agent or a coordinator with a join token."""

    authentication_classes = []
    permission_classes = [AllowAny]
    throttle_classes = [JoinThrottle]

    @for_processes(request=RegisterRequest, responses={201: RegisterReply})
    def post(self, request: Request) -> Response:
        message, now = read_message(RegisterRequest, request), timezone.now()
        with transaction.atomic():
            found = register(message, now, from_this_machine=is_of_this_machine(request))
            follow_addresses(found.row.cluster, now=now)
        return answer(found.reply, status=201)


class IdentityView(ProcessView):
    """A restarted process says what it is and where it listens."""

    @for_processes(request=AgentIdentity, responses={204: None})
    def put(self, request: Request) -> Response:
        identity, now = read_message(AgentIdentity, request), timezone.now()
        is_here = is_of_this_machine(request)
        with transaction.atomic():
            row = update_identity(self.process, identity, now, from_this_machine=is_here)
            follow_addresses(row.cluster, now=now)
        return Response(status=204)


class AgentDesiredView(AgentView):
    """What this node must run."""

    @for_processes(parameters=[_LOOKS], responses=DesiredState)
    def get(self, request: Request) -> Response:
        return answer(desired.desired_state(self.process, takes_looks=_takes_looks(request)))


class HeartbeatView(AgentView):
    """What this node does run."""

    @staticmethod
    @contextmanager
    def together(requests: Sequence[HttpRequest]) -> Iterator[None]:
        """Within, each of them can be answered; what they report is written at the end."""
        processes = authenticate_agents({bearer(request) or "" for request in requests})
        heartbeats = Heartbeats(row for row in processes.values() if isinstance(row, Node))
        for request in requests:
            request.processes = processes  # type: ignore[attr-defined]
            request.heartbeats = heartbeats  # type: ignore[attr-defined]
        yield
        heartbeats.write(now=timezone.now())

    @for_processes(request=Heartbeat, responses=HeartbeatReply)
    def post(self, request: Request) -> Response:
        heartbeat, now, node = read_message(Heartbeat, request), timezone.now(), self.process
        heartbeats: Heartbeats | None = getattr(request, "heartbeats", None)
        own = heartbeats or Heartbeats([node])
        heard_at = node.last_seen_at
        generation = own.record(node, heartbeat, now=now)
        order = None
        if own.is_ordered(node):
            order = follow_profiling(node, heartbeat.profiling, now=now)
        to_reach, to_measure = follow_reach(
            node,
            heartbeat.reach,
            heard_at=heard_at,
            now=now,
            orders_of=own.link_orders,
            keep=own.keep_reach,
        )
        if heartbeats is None:
            own.write(now=now)
        return answer(
            HeartbeatReply.model_construct(  # a thousand endpoints, each checked when it came
                generation=generation, profile=order, to_reach=to_reach, to_measure=to_measure
            )
        )


class WeightPeersView(AgentView):
    """Agents that may have tensors which this node needs."""

    @for_processes(responses=WeightPeers)
    def get(self, request: Request) -> Response:
        return answer(desired.weight_peers(self.process, now=timezone.now()))


class LogView(AgentView):
    """What this node's agent and stage logged lately."""

    throttle_classes = [LogThrottle]

    @for_processes(request=LogBatch, responses={204: None})
    def post(self, request: Request) -> Response:
        record_log(self.process, read_message(LogBatch, request))
        return Response(status=204)


class AgentStreamView(AgentView):
    """The node's desired state now and at every change, as `event: desired`."""

    renderer_classes = [JSONRenderer, EventStreamRenderer]

    @for_processes(parameters=[_LOOKS], responses=_STREAM)
    def get(self, request: Request) -> HttpResponseBase:
        decide = partial(desired.desired_state, takes_looks=_takes_looks(request))
        return desired_stream(self.process, decide)


class CoordinatorDesiredView(CoordinatorView):
    """What the coordinator must serve, and to whom."""

    @for_processes(responses=CoordinatorDesired)
    def get(self, request: Request) -> Response:
        return answer(desired.coordinator_desired(self.process))


class ReportView(CoordinatorView):
    """What the coordinator measures, about once a second."""

    @for_processes(request=CoordinatorReport, responses=HeartbeatReply)
    def post(self, request: Request) -> Response:
        report, now = read_message(CoordinatorReport, request), timezone.now()
        sender = self.process
        heard_at = sender.last_seen_at
        generation = observing.record_report(sender, report, now=now)
        to_reach, to_measure = follow_reach(sender, report.reach, heard_at=heard_at, now=now)
        return answer(
            HeartbeatReply(generation=generation, to_reach=to_reach, to_measure=to_measure)
        )


class CoordinatorStreamView(CoordinatorView):
    """The coordinator's desired state now and at every change, as `event: desired`."""

    renderer_classes = [JSONRenderer, EventStreamRenderer]

    @for_processes(responses=_STREAM)
    def get(self, request: Request) -> HttpResponseBase:
        return desired_stream(self.process, desired.coordinator_desired)


def _takes_looks(request: Request) -> bool:
    """True if the agent knows orders to look at checkpoints. Raises ValidationError."""
    value = request.query_params.get(LOOKS_PARAMETER, "false")
    if value not in ("true", "false"):
        raise ValidationError({LOOKS_PARAMETER: f"It is {value!r}; send true or false."})
    return value == "true"


class SiteWeightsView(ProcessView):
    """A file of a checkpoint below HELIX_MODELS_DIR, or a range of it; of tensors ranges only.

    Served to the processes of clusters that deploy the model, or measure a node for it.
    """

    @for_processes(responses={(200, "application/octet-stream"): OpenApiTypes.BINARY})
    def get(self, request: Request, model: str, revision: str, file: str) -> HttpResponse:
        folder = find_folder(model)
        if folder is None or not _is_ordered(self.process, folder):
            raise NotFound(f"This site has no model {model[:120]!r} in its models folder.")
        commit = commit_of(folder)
        path = folder / file
        if revision not in (SITE, commit) or not is_served(path):
            raise NotFound(f"This site has no {file} of revision {revision} of {model}.")
        asked = _RANGE.fullmatch(request.headers.get("Range", ""))
        size = path.stat().st_size
        if asked is None:
            if file not in WHOLE_FILES:
                raise ParseError(f"{file} is served by range; send Range: bytes=first-last.")
            answer = HttpResponse(path.read_bytes(), content_type="application/octet-stream")
        else:
            first, last = int(asked[1]), min(int(asked[2]), size - 1)
            last = min(last, first + _MOST_BYTES - 1)
            if first > last:
                return HttpResponse(status=416, headers={"Content-Range": f"bytes */{size}"})
            with path.open("rb") as opened:
                opened.seek(first)
                part = opened.read(last + 1 - first)
            answer = HttpResponse(part, status=206, content_type="application/octet-stream")
            answer["Content-Range"] = f"bytes {first}-{last}/{size}"
        answer["X-Repo-Commit"] = commit
        answer["ETag"] = f'"{commit}-{file}"'
        return answer


def _is_ordered(process: Node | Coordinator, folder: Path) -> bool:
    """True if a deployment or a measurement of the cluster of `process` needs this model."""
    deployed = Deployment.unscoped.filter(cluster=process.cluster_id, status__in=LIVE)
    measured = Profiling.unscoped.filter(node__cluster=process.cluster_id, state__in=STANDING)
    for checkpoint in {
        *deployed.values_list("checkpoint", flat=True),
        *measured.values_list("model__checkpoint", flat=True),
    }:
        name = parse_hub_name(checkpoint)
        if find_folder(checkpoint if name is None else name.repository) == folder:
            return True
    return False
