"""Answers for unknown addresses under /api/v1/."""

from typing import Any

from django.urls import Resolver404, resolve
from drf_spectacular.utils import extend_schema
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

SCHEMA_ADDRESS = "/api/schema/"


class UnknownAddressView(APIView):
    """Answers 404 with a problem document instead of a page."""

    @extend_schema(exclude=True)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        raise NotFound(_says(request.path))

    post = put = patch = delete = get


def _says(path: str) -> str:
    """A hint at the address that the client probably meant."""
    if not path.endswith("/") and _leads_somewhere(f"{path}/"):
        return f"There is nothing at {path}; the address ends with a slash: {path}/."
    return f"There is nothing at {path}; {SCHEMA_ADDRESS} lists every address."


def _leads_somewhere(path: str) -> bool:
    try:
        found = resolve(path)
    except Resolver404:
        return False
    return getattr(found.func, "view_class", None) is not UnknownAddressView
