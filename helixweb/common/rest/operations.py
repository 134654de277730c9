"""Operations beside lists and rows, each declared in one place: what it takes and what it gives.

    @post(ProfileSerializer, takes=EstimateSerializer, status=201, of_row=False)
    def estimate(self, **given: Any) -> Profile:
        \"""A profile from the data sheet of a GPU.\"""

The function gets the row that the address names, and by name what the serializer `takes` read: the
parameters of a GET, else the body. `gives` shows what it returns; in a list, many. Without `gives`
there is no answer but its status; other types are only documented.
"""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeAlias

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from helixweb.common.own_turns import in_own_turn
from helixweb.common.serializers import checked

Declare: TypeAlias = Callable[[Callable[..., Any]], Any]


def answers(
    gives: Any = None, *, takes: Any = None, status: int = 0, of_row: bool = True,
    begins: str = "", begun: str = "pk", parameters: Sequence[Any] = (), in_turn: bool = False,
    is_get: bool = False, **of_action: Any,
) -> Declare:  # fmt: skip
    """Decorator of a view's method. `begins` is the address, by its column `begun`, of the row that
    it starts. `in_turn`: slow, so one at a time per user. The rest is passed to DRF's `action`."""
    status = status or (202 if begins else 200 if gives else 204)
    many = isinstance(gives, list)
    shows = gives[0] if many else gives
    is_shown = isinstance(shows, type) and issubclass(shows, serializers.BaseSerializer)
    about: dict[str, Any] = {"responses": {status: shows(many=True) if many else shows}}
    if is_get:
        about["parameters"] = [takes, *parameters] if takes else [*parameters]
    else:
        about["request"] = takes

    def declare(act: Callable[..., Any]) -> Any:
        @wraps(act)
        def respond(self: Any, request: Request, *args: Any, **kwargs: Any) -> Response:
            given = (
                checked(takes, request, request.query_params if is_get else None) if takes else {}
            )
            row = (self.get_object(),) if of_row else ()
            found = act(self, *row, **given)
            headers = {}
            if begins:
                headers["Location"] = reverse(begins, args=[getattr(found, begun)], request=request)
            if is_shown:
                found = shows(found, many=many, context={"request": request}).data
            return Response(found, status=status, headers=headers)

        made: Any = in_own_turn(respond) if in_turn else respond
        made.takes = tuple(takes().fields) if takes and is_get else ()
        if of_action:
            path = of_action.pop("at") or act.__name__.replace("_", "-")
            made = action(detail=of_row, url_path=path, filter_backends=[], **of_action)(made)
        return extend_schema(**about)(made)

    return declare


def post(gives: Any = None, *, at: str = "", **declared: Any) -> Declare:
    """An action of a viewset, `at` the function's name unless it is said."""
    return answers(gives, at=at, methods=["post"], **declared)


def get(gives: Any, *, at: str = "", **declared: Any) -> Declare:
    """The same, for what only shows."""
    return answers(gives, at=at, methods=["get"], is_get=True, **declared)
