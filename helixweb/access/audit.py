"""Writes what happened to people, keys and roles, and what was refused, into the change log.

The log's rows are the inventory's, which is above this app; they are found by name.
"""

from collections.abc import Mapping
from typing import Any

from django.apps import apps
from django.core.cache import cache
from django.db.models import Model

from helixweb.common.actor import by_whom, current_request
from helixweb.common.auth import sha256_hex

# Refusals of one actor or address that are written down within a minute; more say nothing new.
MOST_REFUSALS = 20
SAME_AGAIN_S = 10
_MINUTE_S = 60

Values = Mapping[str, Any]


def note(
    kind: str,
    name: str,
    action: str,
    *,
    row_id: int = 0,
    cluster_id: int | None = None,
    before: Values | None = None,
    after: Values | None = None,
    text: str = "",
) -> None:
    """One line about what is no row of a cluster's; never a secret in it."""
    if before is not None and after is not None:
        keys = [key for key in after if before.get(key) != after[key]]
        before, after = {key: before.get(key) for key in keys}, {key: after[key] for key in keys}
    clusters = apps.get_model("inventory.Cluster").unscoped
    if cluster_id is not None and not clusters.filter(pk=cluster_id).exists():
        cluster_id = None  # named by an answer that was given again after its cluster had gone
    apps.get_model("inventory.Change").objects.create(
        kind=kind,
        name=_kept(name[:200]),
        action=action,
        row_id=row_id,
        cluster_id=cluster_id,
        before=before,
        after=after,
        text=_kept(text),
        **by_whom(),
    )
    mark_told()


def note_row(row: Model, action: str, **said: Any) -> None:
    """One line about a user, a group or a key."""
    cluster_id = getattr(row, "cluster_id", None)
    note(str(row._meta.model_name), str(row), action, row_id=row.pk, cluster_id=cluster_id, **said)


def _kept(text: str) -> str:
    """The text without NUL, which PostgreSQL cannot store: refusals repeat what was sent."""
    return text.replace("\0", "␀")


def note_refusal(kind: str, name: str, *, text: str) -> None:
    """Log a refused attempt: at most `MOST_REFUSALS` a minute of one actor or address, and the same
    one at most once in `SAME_AGAIN_S`."""
    actor = by_whom()
    who = f"{actor['actor_kind']}:{actor['actor'] or actor['address']}"
    same = sha256_hex(f"{who} {kind} {name} {text}")
    if not cache.add(f"refused:{same}", True, SAME_AGAIN_S):
        return
    key = f"refusals:{sha256_hex(who)}"
    cache.add(key, 0, _MINUTE_S)
    try:
        count = cache.incr(key)
    except ValueError:  # it ran out just now
        cache.set(key, 1, _MINUTE_S)
        count = 1
    if count <= MOST_REFUSALS:
        said = text if count < MOST_REFUSALS else f"{text} (more of this minute is left out)"
        note(kind, name, "refused", text=said)


def mark_told() -> None:
    """The request that is being answered has its line in the log."""
    request = current_request()
    if request is not None:
        request.helix_told = True  # type: ignore[attr-defined]
