"""What every view of the REST API for people does before it begins."""

from typing import Any

from rest_framework.request import Request
from rest_framework.views import APIView

from helixweb.common.rest.idempotency import answered_once


class RestMixin:
    """POST is done once for each Idempotency-Key."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Once it is known who asks. (DRF looks up the handler after this.)"""
        super().initial(request, *args, **kwargs)  # type: ignore[misc]
        if request.method == "POST":
            handler = getattr(self, "post", None)
            if handler is not None:
                setattr(self, "post", answered_once(request, handler))  # noqa: B010


class RestView(RestMixin, APIView):
    """A view that is no collection."""
