"""Base of views for agents and coordinators: `Authorization: Bearer hlxn_…`, the credential of one
process, and bodies that are messages of the control protocol."""

import json
import re
from typing import Any, TypeVar

from django.contrib.auth.models import AnonymousUser
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from pydantic import BaseModel, ValidationError
from rest_framework import authentication, exceptions, permissions
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from helixweb.common.auth import bearer
from helixweb.common.problems import TooLarge
from helixweb.deployment.streams import unset_of
from helixweb.inventory.models import Coordinator, Node
from helixweb.inventory.services.presence import authenticate_agent
from runtime.protocol.complaints import complaint

MessageT = TypeVar("MessageT", bound=BaseModel)
SHOWN = 80
# A report about a thousand nodes has a third of it.
MAX_MESSAGE_BYTES = 1_000_000
# Output of engines may contain NUL, which PostgreSQL cannot store.
_NUL = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")


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
    except ValidationError as error:
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


def answer(message: BaseModel, status: int = 200) -> Response:
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
