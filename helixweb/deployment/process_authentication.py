"""Agents and coordinators: `Authorization: Bearer hlxn_…`, the credential of one process."""

from typing import Any

from django.contrib.auth.models import AnonymousUser
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework import authentication, exceptions, permissions
from rest_framework.request import Request
from rest_framework.views import APIView

from helixweb.common.actor import acting_for_site
from helixweb.common.auth import bearer
from helixweb.inventory.models import Coordinator, Node
from helixweb.inventory.services.presence import authenticate_agent


class ProcessAuthentication(authentication.BaseAuthentication):
    """`request.auth` is the Node or Coordinator row."""

    @acting_for_site()
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
        process = authenticate_agent(token)
        if process is None:
            raise exceptions.AuthenticationFailed(
                "This credential is unknown; the node was removed or joined anew. "
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
