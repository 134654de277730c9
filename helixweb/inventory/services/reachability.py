"""Which processes of a cluster do not reach which ports of others, as they found out, and what they
measured of the links between them.

A data port that is not reached keeps plans from being deployed. A weights port does not: layers
then come from other nodes, the site or the hub.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db import transaction
from django.utils.translation import gettext_noop

from helixweb.common.sentences import sentence
from helixweb.inventory.models import Coordinator, Node, lost_after
from helixweb.inventory.services.joining import announce
from helixweb.inventory.services.link_orders import (
    link_orders,
    look_up_orders,
    measured_directions,
    turn_of,
)
from helixweb.inventory.services.measured_links import record_measured
from helixweb.words import gettext
from runtime.protocol.endpoints import parse_endpoint
from runtime.protocol.reach import (
    CANNOT_FETCH,
    LinksToMeasure,
    Reach,
    cut_fields,
    digest_of,
    weights_endpoint,
    why_cut,
)

_REFUSED = "connection refused"
_REACHES = gettext_noop("%(source)s reaches %(target)s at %(place)s.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Party:
    """A process that can be heard. `tried`: it has tried the data ports of the others.

    At the ports of `refused` nothing listened, which is a fault where a process says it `listens`.
    Others fetch weights at `weights_endpoint`; empty: it serves none.
    """

    name: str
    is_coordinator: bool
    endpoint: str
    tried: bool
    failing: dict[str, str]
    refused: frozenset[str] = frozenset()
    listens: bool = False
    weights_endpoint: str = ""

    def why_not(self, target: "Party") -> str:
        """Why it does not reach the target, as its system says it; empty if it is not known not
        to."""
        if target.endpoint in self.refused and target.listens:
            return _REFUSED
        return self.failing.get(target.endpoint, "")

    def why_no_weights(self, target: "Party") -> str:
        """The same of the port at which the target serves weights, as long as it is up."""
        if target.weights_endpoint in self.refused:
            return _REFUSED
        return self.failing.get(target.weights_endpoint, "")


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
        said = why_cut(self.endpoint, is_refused=self.why == _REFUSED)
        if self.for_weights:
            said = CANNOT_FETCH
        return gettext(said) % cut_fields(self.source, self.target, self.endpoint)


def follow_reach(
    process: Node | Coordinator, reach: Reach | None, *, heard_at: datetime | None, now: datetime
) -> tuple[tuple[str, ...] | None, LinksToMeasure | None]:
    """Store what a process reports; returns the endpoints that it must try, and measure.

    None if it has tried them, was asked a moment ago, or reports nothing: an earlier release, or a
    process that leaves. What was reported before is then deleted, since nothing would update it.
    `heard_at` is when it was heard before.
    """
    if reach is None:
        if process.reach:
            type(process).objects.filter(pk=process.pk).update(reach={})
        return None, None
    _record(process, reach, now=now)
    if reach.measured:
        record_measured(process.cluster, measured_directions(process, reach.measured, now=now))
        found = look_up_orders(process.cluster_id, now=now)
    elif reach.tried and heard_at is not None and turn_of(heard_at) == turn_of(now):
        return None, None
    else:
        found = link_orders(process.cluster_id, now=now)
    wanted = found.to_reach(process)
    to_measure = found.to_measure(process) if reach.measures or reach.listens else None
    return None if digest_of(wanted) == reach.tried else wanted, to_measure


def _record(process: Node | Coordinator, reach: Reach, *, now: datetime) -> None:
    """Announces the first pair that broke or came back."""
    # What earlier releases do not say stays unsaid.
    told: dict[str, Any] = reach.model_dump(mode="json", exclude={"measured"}, exclude_unset=True)
    if process.reach == told:
        return
    with transaction.atomic():
        type(process).objects.filter(pk=process.pk).update(reach=told)
        before = frozenset(process.reach.get("failing", ()))
        process.reach = told
        broken, back = reach.failing.keys() - before, before - reach.failing.keys()
        if not broken and not back:
            return
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


def parties(cluster_id: int, *, now: datetime, names: Collection[str] | None = None) -> list[Party]:
    """Coordinators, then nodes that can be heard, or those of the nodes with these `names`."""
    found = []
    for kind in (Coordinator, Node):
        rows = _heard(kind, cluster_id, now=now)
        if kind is Node and names is not None:
            rows = rows.filter(name__in=names)
        for name, endpoint, reach in rows.values_list("name", "data_endpoint", "reach"):
            found.append(
                Party(
                    name=name,
                    is_coordinator=kind is Coordinator,
                    endpoint=endpoint,
                    tried=bool(reach.get("tried")),
                    failing=reach.get("failing", {}),
                    refused=frozenset(reach.get("refused", ())),
                    listens=reach.get("listens", kind is Coordinator),
                    weights_endpoint=weights_endpoint(endpoint, reach.get("weights_port")),
                )
            )
    return found


def cut_pairs(found: Iterable[Party]) -> list[CutPair]:
    """Every pair of these processes of which the first does not reach the data port of the
    second."""
    return _cut_pairs(list(found), lambda party: party.endpoint, Party.why_not)


def weights_cut_pairs(found: Iterable[Party]) -> list[CutPair]:
    """The same of the ports at which nodes serve weights, on machines that can be dialled."""
    return [
        replace(pair, for_weights=True)
        for pair in _cut_pairs(
            list(found), lambda party: party.weights_endpoint, Party.why_no_weights
        )
        if not parse_endpoint(pair.endpoint).is_loopback
    ]


def _cut_pairs(
    found: Sequence[Party],
    endpoint_of: Callable[[Party], str],
    why_not: Callable[[Party, Party], str],
) -> list[CutPair]:
    by_endpoint = {endpoint_of(party): party for party in found}
    return [
        CutPair(source=source.name, target=target.name, endpoint=endpoint, why=why)
        for source in found
        for endpoint in sorted({*source.failing, *source.refused})
        if (target := by_endpoint.get(endpoint)) is not None and target is not source
        if (why := why_not(source, target))
    ]


def _heard(kind: Any, cluster_id: int, *, now: datetime) -> Any:
    return kind.objects.filter(
        cluster=cluster_id, joined_at__isnull=False, last_seen_at__gte=now - lost_after()
    ).order_by("pk")
