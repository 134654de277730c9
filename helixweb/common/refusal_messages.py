"""Shows on pages what services refuse."""

from types import TracebackType

from django.contrib import messages
from django.http import HttpRequest

from helixweb.common.refusals import Refused


class RefusalsShown:
    """Context manager: a refusal ends the block, and is a message of the page that comes next."""

    def __init__(self, request: HttpRequest) -> None:
        self._request = request

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> bool:
        if isinstance(error, Refused):
            messages.error(self._request, str(error))
        return isinstance(error, Refused)
