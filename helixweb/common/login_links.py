"""One-time login links, printed by `manage.py loginlink`: there is no default password."""

import secrets
from datetime import timedelta
from typing import Any

from django.utils import timezone

from helixweb.common.auth import sha256_hex
from helixweb.common.models import LoginLink

VALID_FOR = timedelta(hours=1)


def create(user: Any) -> str:
    """A token for /login/link/<token>/, good once within `VALID_FOR`."""
    token = secrets.token_urlsafe(32)
    LoginLink.objects.create(
        token_hash=sha256_hex(token), user=user, expires_at=timezone.now() + VALID_FOR
    )
    return token


def redeem(token: str) -> Any | None:
    """The link's user, the first time; None when it is unknown, used or expired."""
    now = timezone.now()
    link = LoginLink.objects.filter(
        token_hash=sha256_hex(token), used_at__isnull=True, expires_at__gt=now
    )
    if not link.update(used_at=now):
        return None
    user = LoginLink.objects.select_related("user").get(token_hash=sha256_hex(token)).user
    return user if user.is_active else None
