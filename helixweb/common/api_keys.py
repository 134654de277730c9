"""Makes and ends API keys."""

import secrets
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from django.utils import timezone

from helixweb.common.addresses import parsed_network
from helixweb.common.auth import SCOPES, sha256_hex
from helixweb.common.models import ApiKey
from helixweb.common.peppers import peppers

MOST_NETWORKS = 32


def create_api_key(
    *,
    scopes: Iterable[str],
    networks: Sequence[str] = (),
    expires_at: datetime | None = None,
    **columns: Any,
) -> ApiKey:
    """Create `hlx_<key>.<secret>`, which the row has as `secret` this once and nothing stores.

    `columns`: the others of its row, `name` and `user` at least. Raises ValueError for an unknown
    scope, network or expiry.
    """
    wanted = sorted(set(scopes))
    unknown = [scope for scope in wanted if scope not in SCOPES]
    if unknown or not wanted:
        raise ValueError(f"scopes {unknown or wanted} are unknown; choose from {', '.join(SCOPES)}")
    if expires_at is not None and expires_at <= timezone.now():
        raise ValueError(f"expiry {expires_at:%Y-%m-%d %H:%M} is past; choose a later one")
    if len(networks) > MOST_NETWORKS:
        raise ValueError(f"{len(networks)} networks; at most {MOST_NETWORKS} are allowed")
    key = secrets.token_hex(6)
    secret = f"hlx_{key}.{secrets.token_urlsafe(30)}"
    pepper = peppers()[0]
    row = ApiKey.objects.create(
        key=key,
        secret_hash=pepper.hash_of(sha256_hex(secret)),
        pepper=pepper.id,
        scopes=wanted,
        networks=[str(parsed_network(text)) for text in networks],
        expires_at=expires_at,
        **columns,
    )
    row.secret = secret
    return row


def revoke(key: ApiKey) -> bool:
    """End it at once; False if that was done before."""
    if key.revoked_at is not None:
        return False
    key.revoked_at = timezone.now()
    key.save(update_fields=["revoked_at"])  # not update(): coordinators listen to saves
    return True
