"""API keys made and ended by people and programs, with a line in the change log for each."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Sum
from django.utils import timezone

from helixweb.access import audit
from helixweb.access.roles_of_holders import end_streams
from helixweb.common.addresses import Network, parsed_network
from helixweb.common.api_keys import create_api_key
from helixweb.common.models import ApiKey, KeyUsage

BUDGETS = ("requests_per_min", "tokens_per_min", "tokens_per_day")
COUNTS = ("rest_requests", "requests", "prompt_tokens", "output_tokens")


def make(**columns: Any) -> ApiKey:
    """A key with these columns, as `create_api_key` makes it. Raises ValueError."""
    with transaction.atomic():
        key = create_api_key(**columns)
        audit.note_row(key, "added", after=_told(key))
    return key


def more_than(
    maker: ApiKey,
    *,
    scopes: Iterable[str],
    cluster: Any,
    networks: Iterable[str],
    expires_at: datetime | None,
    **_: Any,
) -> str:
    """Why such a key would do more than the one that makes it; empty: it would not."""
    more = sorted(set(scopes) - set(maker.scopes))
    if more:
        return f"This key has no scope {', '.join(more)} to give."
    if maker.cluster_id is not None and (cluster is None or cluster.pk != maker.cluster_id):
        return "This key is for one cluster; name that one."
    if maker.networks and not _all_within(networks, maker.networks):
        return f"This key is for {', '.join(maker.networks)}; name networks within."
    if maker.expires_at is not None and (expires_at is None or expires_at > maker.expires_at):
        return f"This key expires at {maker.expires_at.isoformat()}; choose no later expires_at."
    if any(getattr(maker, name) is not None for name in BUDGETS):
        return (
            "This key is held to a rate or a budget, of which another key would have its own; make "
            "keys with one that is not, or in the web interface."
        )
    return ""


def _all_within(networks: Iterable[str], outer: Iterable[str]) -> bool:
    """Whether there are any, and each lies within one of `outer`."""
    inner, around = [[parsed_network(text) for text in texts] for texts in (networks, outer)]
    return bool(inner) and all(any(_lies_in(one, wide) for wide in around) for one in inner)


def _lies_in(one: Network, wide: Network) -> bool:
    return (
        one.version == wide.version
        and wide.network_address <= one.network_address  # type: ignore[operator]  # one version
        and one.broadcast_address <= wide.broadcast_address  # type: ignore[operator]
    )


def end(key: ApiKey) -> bool:
    """Revoke it; False if that was done before."""
    if key.revoked_at is not None:
        return False
    with transaction.atomic():
        key.revoked_at = timezone.now()
        key.save(update_fields=["revoked_at"])  # not update(): coordinators listen to saves
        audit.note_row(key, "removed", before=_told(key), text="revoked")
        end_streams([key.user_id])
    return True


def used_by(rows: Iterable[ApiKey], *, now: datetime) -> list[ApiKey]:
    """Each with `used` (since it was made) and `used_today`, as dictionaries of counts."""
    keys = list(rows)
    usage = KeyUsage.objects.filter(key__in=keys)
    sums = {name: Sum(name) for name in COUNTS}
    ever: dict[int, Any] = {
        row["key"]: row for row in usage.values("key").annotate(**sums).order_by()
    }
    today: dict[int, Any] = {
        row["key"]: row for row in usage.filter(day=now.date()).values("key", *COUNTS)
    }
    for key in keys:
        key.used = {name: ever.get(key.pk, {}).get(name, 0) for name in COUNTS}  # type: ignore[attr-defined]
        key.used_today = {name: today.get(key.pk, {}).get(name, 0) for name in COUNTS}  # type: ignore[attr-defined]
    return keys


def _told(key: ApiKey) -> dict[str, Any]:
    return {
        "owner": key.user.get_username(),
        "expires_at": key.expires_at.isoformat() if key.expires_at else None,
        **{name: getattr(key, name) for name in ("scopes", "networks", *BUDGETS)},
    }
