"""django-csp, with the header of answers that ask for nothing of their own made once."""

from typing import Any

from csp.constants import HEADER
from csp.middleware import CSPMiddleware
from csp.utils import build_policy
from django.conf import settings
from django.http import HttpRequest, HttpResponseBase

_OWN = (
    "_csp_exempt", "_csp_config", "_csp_update", "_csp_replace", "_csp_exempt_ro", "_csp_config_ro",
    "_csp_update_ro", "_csp_replace_ro",
)  # fmt: skip


class ContentSecurityPolicy(CSPMiddleware):
    """For pages as django-csp does it. The REST API answers hundreds of times a second, and neither
    has scripts nor differs from answer to answer.
    """

    def __init__(self, get_response: Any) -> None:
        super().__init__(get_response)
        self._made: tuple[Any, str] = (None, "")

    def process_response(
        self, request: HttpRequest, response: HttpResponseBase
    ) -> HttpResponseBase:
        is_rest = request.path_info.startswith("/api/v1/")
        if not is_rest or getattr(request, "_csp_nonce", None) or _has_its_own(response):
            return super().process_response(request, response)
        if HEADER not in response:
            response[HEADER] = self._policy()
        return response

    def _policy(self) -> str:
        of, text = self._made
        if of is not settings.CONTENT_SECURITY_POLICY:
            of, text = self._made = settings.CONTENT_SECURITY_POLICY, build_policy()
        return text


def _has_its_own(response: HttpResponseBase) -> bool:
    return any(name in response.__dict__ for name in _OWN)
