"""Authentication: sessions for users, `Authorization: Bearer hlx_…` keys for programs."""

import hashlib
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.utils import timezone
from rest_framework import authentication, exceptions
from rest_framework.request import Request

from helixweb.common import key_usage
from helixweb.common.addresses import address_of, is_within
from helixweb.common.models import ApiKey
from helixweb.common.peppers import peppers

READ = "read"
WRITE = "write"
SERVE = "serve"
ADMIN = "admin"
SCOPES = (READ, WRITE, SERVE, ADMIN)


def sha256_hex(secret: str) -> str:
    """Hash of other bearer secrets: they have 128 random bits or more, so need no salt."""
    return hashlib.sha256(secret.encode()).hexdigest()


def bearer(request: Any) -> str | None:
    """The token of `Authorization: Bearer TOKEN`, or None."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else None


def key_of(token: str) -> ApiKey | None:
    """The row of a whole key; a hash made with an earlier pepper is replaced."""
    digest = sha256_hex(token)
    hashes = {pepper.id: pepper.hash_of(digest) for pepper in peppers()}
    row = ApiKey.objects.select_related("user").filter(secret_hash__in=hashes.values()).first()
    current = next(iter(hashes))
    if row is not None and row.secret_hash != hashes[current]:
        row.secret_hash, row.pepper = hashes[current], current
        row.save(update_fields=["secret_hash", "pepper"])  # coordinators hear of it
    return row


class ApiKeyAuthentication(authentication.BaseAuthentication):
    """`request.auth` is the ApiKey row."""

    def knows(self, request: Any) -> bool:
        """True if the request has a good key; does not count as a request of the key."""
        try:
            return row_of(request) is not None
        except exceptions.AuthenticationFailed:
            return False

    def authenticate(self, request: Request) -> tuple[AbstractBaseUser, ApiKey] | None:
        row = row_of(request)
        if row is None:
            return None
        wait_s = key_usage.count_request(row, now=timezone.now())
        if wait_s:
            raise exceptions.Throttled(
                wait_s, f"This API key may send {row.requests_per_min} requests a minute."
            )
        return row.user, row

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


def row_of(request: Any) -> ApiKey | None:
    """The row of the request's key; None: it has no key. Raises AuthenticationFailed."""
    token = bearer(request)
    if token is None or not token.startswith("hlx_"):
        return None
    row = key_of(token)
    if row is None or row.revoked_at is not None or not row.user.is_active:
        raise exceptions.AuthenticationFailed("This API key is unknown or revoked.")
    if row.expires_at is not None and row.expires_at <= timezone.now():
        raise exceptions.AuthenticationFailed("This API key has expired; create a new one.")
    if not is_within(address_of(request), row.networks):
        raise exceptions.AuthenticationFailed(
            f"This API key may not be used from {address_of(request)}; "
            f"it is for {', '.join(row.networks)}."
        )
    return row
