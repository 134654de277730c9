"""Who is asking: sessions for people, `Authorization: Bearer hlx_…` keys for programs."""

import hashlib
import secrets
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.contrib.auth.models import AbstractBaseUser
from django.utils import timezone
from rest_framework import authentication, exceptions, permissions
from rest_framework.request import Request

from helixweb.common.models import ApiKey

if TYPE_CHECKING:  # at run time rest_framework.views imports this module
    from rest_framework.views import APIView

READ = "read"
WRITE = "write"
SERVE = "serve"
SCOPES = (READ, WRITE, SERVE)


def sha256_hex(secret: str) -> str:
    """How every bearer secret is kept: it has 128 random bits or more, so no salt is needed."""
    return hashlib.sha256(secret.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class NewKey:
    """A key just made; `secret` is shown once and never stored."""

    row: ApiKey
    secret: str


def create_api_key(*, name: str, user: Any, scopes: list[str]) -> NewKey:
    """Make `hlx_<key>.<secret>`. Raises ValueError for an unknown scope."""
    unknown = sorted(set(scopes) - set(SCOPES))
    if unknown or not scopes:
        raise ValueError(f"scopes {unknown or scopes} are unknown; choose from {', '.join(SCOPES)}")
    key = secrets.token_hex(6)
    whole = f"hlx_{key}.{secrets.token_urlsafe(30)}"
    row = ApiKey.objects.create(
        name=name, key=key, secret_hash=sha256_hex(whole), scopes=sorted(scopes), user=user
    )
    return NewKey(row=row, secret=whole)


def bearer(request: Any) -> str | None:
    """The token of `Authorization: Bearer TOKEN`, or None."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else None


class ApiKeyAuthentication(authentication.BaseAuthentication):
    """`request.auth` is the ApiKey row."""

    def authenticate(self, request: Request) -> tuple[AbstractBaseUser, ApiKey] | None:
        token = bearer(request)
        if token is None or not token.startswith("hlx_"):
            return None
        now = timezone.now()
        row = ApiKey.objects.select_related("user").filter(secret_hash=sha256_hex(token)).first()
        if row is None or row.revoked_at is not None or not row.user.is_active:
            raise exceptions.AuthenticationFailed("This API key is unknown or revoked.")
        if row.expires_at is not None and row.expires_at <= now:
            raise exceptions.AuthenticationFailed("This API key has expired; create a new one.")
        if row.last_used_at is None or now - row.last_used_at > timedelta(minutes=1):
            ApiKey.objects.filter(pk=row.pk).update(last_used_at=now)
        return row.user, row

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


class HasScope(permissions.BasePermission):
    """People logged in may do all; a key needs `read` for safe methods, `write` for others."""

    message = "This API key lacks the scope for this action."

    def has_permission(self, request: Request, view: "APIView") -> bool:
        if not (request.user and request.user.is_authenticated):
            return False
        if not isinstance(request.auth, ApiKey):
            return True
        needed = READ if request.method in permissions.SAFE_METHODS else WRITE
        return needed in request.auth.scopes
