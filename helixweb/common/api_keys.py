"""Makes and ends API keys."""

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils import timezone

from helixweb.common.addresses import parsed_network
from helixweb.common.auth import SCOPES, sha256_hex
from helixweb.common.models import ApiKey
from helixweb.common.peppers import peppers

MOST_NETWORKS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class NewKey:
    """A key just made; `secret` is shown once and never stored."""

    row: ApiKey
    secret: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a key is held to; None and empty are no limit."""

    expires_at: datetime | None = None
    networks: Sequence[str] = ()
    requests_per_min: int | None = None
    tokens_per_min: int | None = None
    tokens_per_day: int | None = None


def create_api_key(
    *,
    name: str,
    user: Any,
    scopes: Iterable[str],
    cluster: Any = None,
    limits: Limits | None = None,
) -> NewKey:
    """Make `hlx_<key>.<secret>`. Raises ValueError for an unknown scope, network or expiry."""
    wanted, limits = sorted(set(scopes)), limits or Limits()
    unknown = [scope for scope in wanted if scope not in SCOPES]
    if unknown or not wanted:
        raise ValueError(f"scopes {unknown or wanted} are unknown; choose from {', '.join(SCOPES)}")
    if limits.expires_at is not None and limits.expires_at <= timezone.now():
        raise ValueError(f"expiry {limits.expires_at:%Y-%m-%d %H:%M} is past; choose a later one")
    if len(limits.networks) > MOST_NETWORKS:
        raise ValueError(f"{len(limits.networks)} networks; at most {MOST_NETWORKS} are allowed")
    key = secrets.token_hex(6)
    whole = f"hlx_{key}.{secrets.token_urlsafe(30)}"
    pepper = peppers()[0]
    row = ApiKey.objects.create(
        name=name,
        key=key,
        secret_hash=pepper.hash_of(sha256_hex(whole)),
        pepper=pepper.id,
        scopes=wanted,
        user=user,
        cluster=cluster,
        networks=[str(parsed_network(text)) for text in limits.networks],
        requests_per_min=limits.requests_per_min,
        tokens_per_min=limits.tokens_per_min,
        tokens_per_day=limits.tokens_per_day,
        expires_at=limits.expires_at,
    )
    return NewKey(row=row, secret=whole)


def revoke(key: ApiKey) -> bool:
    """End it at once; False if that was done before."""
    if key.revoked_at is not None:
        return False
    key.revoked_at = timezone.now()
    key.save(update_fields=["revoked_at"])  # not update(): whoever listens to saves must hear
    return True
