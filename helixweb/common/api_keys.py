"""Creates API keys."""

import secrets
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext as _

from helixweb.common.addresses import parsed_network
from helixweb.common.auth import SCOPES, sha256_hex
from helixweb.common.models import ApiKey
from helixweb.common.peppers import peppers

MOST_NETWORKS = 32


def checked_networks(texts: Sequence[str]) -> list[str]:
    """Networks in the form in which keys have them. Raises ValueError with the reason."""
    if len(texts) > MOST_NETWORKS:
        raise ValueError(_("At most %(most)s networks are allowed.") % {"most": MOST_NETWORKS})
    return [str(parsed_network(text)) for text in texts]


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
    key = secrets.token_hex(6)
    secret = f"hlx_{key}.{secrets.token_urlsafe(30)}"
    pepper = peppers()[0]
    row = ApiKey.objects.create(
        key=key,
        secret_hash=pepper.hash_of(sha256_hex(secret)),
        pepper=pepper.id,
        scopes=wanted,
        networks=checked_networks(networks),
        expires_at=expires_at,
        **columns,
    )
    row.secret = secret
    return row
