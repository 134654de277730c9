"""Which processes of a cluster do not reach which ports of others, as they found out, and what they
measured of the links between them.

A data port that is not reached keeps plans from being deployed. A weights port does not: layers
then come from other nodes, the site or the hub.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

from django.db import transaction
from django.utils.translation import gettext_noop

from helixweb.common.sentences import sentence
from helixweb.inventory.link_sampling import REFUSED, Member
from helixweb.inventory.models import Coordinator, Node
from helixweb.inventory.services.joining import announce
from helixweb.inventory.services.measured_links import (
    LinkOrders,
    link_orders,
    look_up_orders,
    members_of,
    record_measured,
    turn_of,
)
from helixweb.words import gettext
from runtime.protocol.endpoints import parse_endpoint
from runtime.protocol.reach import (
    CANNOT_FETCH,
    LinksToMeasure,
    Reach,
    cut_fields,
    digest_of,
    why_cut,
)

# A larger matrix is limited to so many processes, of broken pairs only.
MOST_DRAWN = 12
_REACHES = gettext_noop("%(source)s reaches %(target)s at %(place)s.")


@dataclass(frozen=True, slots=True, kw_only=True)
class CutPair:
    """`source` does not reach `endpoint`, the data port of `target` or the one `for_weights`; `why`
    as its system says it."""

    source: str
    target: str
    endpoint: str
    why: str
    for_weights: bool = False

    @property
    def remedy(self) -> str:
        """The whole sentence, in the reader's language."""
        said = why_cut(self.endpoint, is_refused=self.why == REFUSED)
        if self.for_weights:
            said = CANNOT_FETCH
        return gettext(said) % cut_fields(self.source, self.target, self.endpoint)


def follow_reach(
    process: Node | Coordinator,
    reach: Reach | None,
    *,
    heard_at: datetime | None,
    now: datetime,
    orders_of: Callable[[int], LinkOrders] | None = None,
    keep: Callable[[Node | Coordinator], None] | None = None,
) -> tuple[tuple[str, ...] | None, LinksToMeasure | None]:
    """Store what a process reports; returns the endpoints that it must try, and measure.

    None if it has tried them, was asked a moment ago, or reports nothing: an earlier release, or a
    process that leaves. What was reported before is then deleted, since nothing would update it.
    `heard_at` is when it was heard before; `orders_of` gives the `link_orders` of a cluster; `keep`
    stores a changed `reach` later, if no pair broke or came back.
    """
    if reach is None:
        if process.reach:
            type(process).unscoped.filter(pk=process.pk).update(reach={})
        return None, None
    _record(process, reach, now=now, keep=keep or keep_reach)
    if reach.measured:
        record_measured(process, reach.measured, now=now)
        found = look_up_orders(process.cluster_id, now=now)
    elif reach.tried and heard_at is not None and turn_of(heard_at) == turn_of(now):
        return None, None
    else:
        found = (orders_of or partial(link_orders, now=now))(process.cluster_id)
    wanted = found.to_reach(process)
    to_measure = found.to_measure(process) if reach.measures or reach.listens else None
    return None if digest_of(wanted) == reach.tried else wanted, to_measure


def keep_reach(process: Node | Coordinator) -> None:
    """Store its `reach`."""
    type(process).unscoped.filter(pk=process.pk).update(reach=process.reach)


def _record(
    process: Node | Coordinator,
    reach: Reach,
    *,
    now: datetime,
    keep: Callable[[Node | Coordinator], None],
) -> None:
    """Announces the first pair that broke or came back."""
    # Fields that earlier releases do not send are not stored.
    sent: dict[str, Any] = reach.model_dump(mode="json", exclude={"measured"}, exclude_unset=True)
    if process.reach == sent:
        return
    before = frozenset(process.reach.get("failing", ()))
    process.reach = sent
    broken, back = reach.failing.keys() - before, before - reach.failing.keys()
    if not broken and not back:
        keep(process)
        return
    with transaction.atomic():
        keep_reach(process)
        found = parties(process.cluster_id, now=now)
        names = {party.endpoint: party.name for party in found}
        for_weights = {party.weights_endpoint: party.name for party in found}
        changed = sorted(broken) + sorted(back)
        for endpoint in [one for one in changed if one in names or one in for_weights][:1]:
            cut = why_cut(endpoint) if endpoint in names else CANNOT_FETCH
            target = names.get(endpoint) or for_weights[endpoint]
            said = cut if endpoint in broken else _REACHES
            fields = cut_fields(process.name, target, endpoint)
            announce(process, now=now, said=sentence(said, **fields))


def parties(
    cluster_id: int, *, now: datetime, names: Collection[str] | None = None
) -> list[Member]:
    """Online coordinators, then online nodes, or those of the nodes with these `names`."""
    return [
        member
        for member in members_of(cluster_id, now=now)
        if member.heard and (names is None or member.is_coordinator or member.name in names)
    ]


def cut_pairs(found: Iterable[Member]) -> list[CutPair]:
    """Every pair of these processes whose first cannot reach the second's data port."""
    return _cut_pairs(list(found), lambda party: party.endpoint, Member.why_not)


def weights_cut_pairs(found: Iterable[Member]) -> list[CutPair]:
    """The same of the ports at which nodes serve weights, on machines that can be dialled."""
    return [
        replace(pair, for_weights=True)
        for pair in _cut_pairs(
            list(found), lambda party: party.weights_endpoint, Member.why_no_weights
        )
        if not parse_endpoint(pair.endpoint).is_loopback
    ]


def _cut_pairs(
    found: Sequence[Member],
    endpoint_of: Callable[[Member], str],
    why_not: Callable[[Member, Member], str],
) -> list[CutPair]:
    by_endpoint = {endpoint_of(party): party for party in found}
    return [
        CutPair(source=source.name, target=target.name, endpoint=endpoint, why=why)
        for source in found
        for endpoint in sorted({*source.reach.failing, *source.reach.refused})
        if (target := by_endpoint.get(endpoint)) is not None and target is not source
        if (why := why_not(source, target))
    ]


def reach_matrix(parties: Sequence[Member]) -> dict[str, Any]:
    """The matrix of online processes, in the order of `parties`.

    `untried` are those that have not reported yet, of `count`; `cuts` are of data ports,
    `weights_cuts` of ports at which nodes serve weights. A row has a cell for each name.
    """
    cuts, weights_cuts = cut_pairs(parties), weights_cut_pairs(parties)
    drawn = list(parties)
    if len(drawn) > MOST_DRAWN:
        involved = {name for cut in (*cuts, *weights_cuts) for name in (cut.source, cut.target)}
        drawn = [party for party in parties if party.name in involved][:MOST_DRAWN]
    return {
        "count": len(parties),
        "untried": [party.name for party in parties if not party.reach.tried],
        "cuts": cuts,
        "weights_cuts": weights_cuts,
        "names": [party.name for party in drawn],
        "rows": [
            {"name": source.name, "cells": [_cell(source, target) for target in drawn]}
            for source in drawn
        ],
    }


def _cell(source: Member, target: Member) -> str:
    """ "ok", "cut", "closed" (the machine answers, but no stage runs), "no weights" (only the
    weights port is not reached), "untried", "" (itself)."""
    if source is target or (source.is_coordinator and target.is_coordinator):
        return ""
    if source.why_not(target):
        return "cut"
    if target.endpoint in source.reach.refused:
        return "closed"
    if source.why_no_weights(target):
        return "no weights"
    return "ok" if source.reach.tried else "untried"
