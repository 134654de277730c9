"""Base of REST views for users: checks before a request is handled; and operations beside lists and
rows, each declared in one place: what it takes and what it gives.

    @post(ProfileSerializer, takes=EstimateSerializer, status=201, of_row=False)
    def estimate(self, **given: Any) -> Profile:
        \"""A profile from the data sheet of a GPU.\"""

The function gets the row that the address names, and by name what the serializer `takes` read: the
parameters of a GET, else the body. `gives` shows what it returns; in a list, many. Without `gives`
there is no answer but its status; other types are only documented.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, ClassVar, TypeAlias

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import exceptions, permissions, serializers
from rest_framework.decorators import action
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse
from rest_framework.views import APIView

from helixweb.common.own_turns import in_own_turn
from helixweb.common.queries import MAX_DIGITS, within
from helixweb.common.rest.idempotency import answered_once
from helixweb.common.rest.lists import check_parameters
from helixweb.common.rest.negotiation import ByAccept
from helixweb.common.serializers import checked

Declare: TypeAlias = Callable[[Callable[..., Any]], Any]


class RestMixin:
    """Unknown and empty parameters are refused, and POST is done once for each Idempotency-Key."""

    # Parameters that may be given several times.
    may_repeat: ClassVar[frozenset[str]] = frozenset()
    lookup_value_regex = f"[0-9]{{1,{MAX_DIGITS}}}"  # int() takes digits of other scripts, too
    content_negotiation_class: type[BaseContentNegotiation] = ByAccept

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Check the request once its user is known. (DRF looks up the handler after this.)"""
        super().initial(request, *args, **kwargs)  # type: ignore[misc]
        if getattr(self, str(request.method).lower(), None) is None:
            raise exceptions.MethodNotAllowed(str(request.method))
        check_parameters(request, self.query_parameters(), may_repeat=self.may_repeat)
        if "If-Match" in request.headers and not (
            request.method in permissions.SAFE_METHODS or self.checks_version()
        ):
            why = "Nothing is compared here, so leave it out; a batch names ETags in `if_match`."
            raise exceptions.ValidationError({"If-Match": [why]})
        if self._takes_no_body(str(request.method)) and not _is_empty(request):
            raise exceptions.ValidationError("This takes no body; leave it out. Nothing was done.")
        if request.method == "POST":
            handler = getattr(self, "post", None)
            if handler is not None:
                setattr(self, "post", answered_once(request, handler))  # noqa: B010

    def _takes_no_body(self, method: str) -> bool:
        """True if the operation has no body according to the OpenAPI document."""
        if method != "POST":
            return method == "DELETE"
        handler = getattr(self, getattr(self, "action", None) or "post")
        schema = getattr(handler, "kwargs", {}).get("schema")
        if schema is None:
            return False
        described: Any = schema()
        described.view, described.method = self, method
        return described.get_request_serializer() is None

    def checks_version(self) -> bool:
        """Whether it compares If-Match with the row; else that header is refused."""
        return False

    def query_parameters(self) -> Iterable[str] | None:
        """Names of known query parameters; None: the view checks them itself."""
        view: Any = self
        name = getattr(view, "action", None) or str(view.request.method).lower()
        return getattr(getattr(view, name, None), "takes", ())


def _is_empty(request: Request) -> bool:
    return request.body.strip() in (b"", b"{}", b"null")


class RestView(RestMixin, APIView):
    """A view that is no collection; its row is one of the model that it `needs`."""

    needs: ClassVar[Any]

    def rows(self) -> Any:
        """Rows in the scope of the request."""
        return within(self.needs.model.objects.all(), self.request)

    def get_object(self) -> Any:
        return get_object_or_404(self.rows(), pk=self.kwargs["pk"])


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
