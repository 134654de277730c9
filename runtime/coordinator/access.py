"""Who may use the endpoint: API keys, known by their SHA-256 only."""

import hashlib
import hmac
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from runtime.protocol.openai import ApiError

OPEN_PATHS = frozenset({"/health"})


class ApiKeys:
    """The keys admitted now; replaced whole when helixweb sends others."""

    def __init__(self, hashes: Iterable[str] = ()) -> None:
        self.replace(hashes)

    def replace(self, hashes: Iterable[str]) -> None:
        """`hashes`: hex SHA-256 of each whole key."""
        self._hashes = tuple(value.lower().encode() for value in hashes)

    def check(self, authorization: str | None) -> str:
        """The hash of the key. Raises ApiError 401 unless the header is `Bearer KEY` with a known
        one."""
        scheme, _, key = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise _unauthorized(
                "no API key was given; send the header 'Authorization: Bearer KEY' with a key "
                "made in the web interface"
            )
        given = hashlib.sha256(key.strip().encode()).hexdigest().encode()
        # Every hash is compared, each in constant time: the answer's delay tells nothing.
        if not any([hmac.compare_digest(given, known) for known in self._hashes]):
            raise _unauthorized(
                "this API key is not known here; it may have been revoked: make another in the "
                "web interface"
            )
        return given.decode()


class PassedOnKeys(ApiKeys):
    """The one key of this process's own front, with the hash of its client's key behind a dot."""

    def __init__(self, own_key: str) -> None:
        super().__init__([hashlib.sha256(own_key.encode()).hexdigest()])

    def check(self, authorization: str | None) -> str:
        """The client's hash, which the front has checked. Raises ApiError 401."""
        own, _, owner = (authorization or "").rpartition(".")
        super().check(own or authorization)
        return owner


class RequireApiKey:
    """ASGI middleware: every path but `OPEN_PATHS` needs a key, so a new route cannot forget it.

    `owner` of the request's state is the hash of its key.
    """

    def __init__(self, app: ASGIApp, *, keys: ApiKeys) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            try:
                owner = self._keys.check(Headers(scope=scope).get("authorization"))
            except ApiError as error:
                refusal = JSONResponse(
                    error.body(), status_code=error.status, headers={"WWW-Authenticate": "Bearer"}
                )
                await refusal(scope, receive, send)
                return
            scope.setdefault("state", {})["owner"] = owner
        await self._app(scope, receive, send)


def _unauthorized(message: str) -> ApiError:
    return ApiError(
        status=401, message=message, code="invalid_api_key", type_="authentication_error"
    )
