"""Base of REST views for users: checks before a request is handled."""

from collections.abc import Iterable
from typing import Any, ClassVar

from django.shortcuts import get_object_or_404
from rest_framework import exceptions, permissions
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.request import Request
from rest_framework.views import APIView

from helixweb.common.queries import within
from helixweb.common.rest.idempotency import answered_once
from helixweb.common.rest.lists import check_parameters
from helixweb.common.rest.negotiation import ByAccept


class RestMixin:
    """Unknown and empty parameters are refused, and POST is done once for each Idempotency-Key."""

    # Parameters that may be given several times.
    may_repeat: ClassVar[frozenset[str]] = frozenset()
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
