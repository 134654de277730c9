"""Links of a deployment: their current rates compared with its plan, measurements
to store, and routing weights that follow them. No layer moves; a user may stop it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop
from pydantic import TypeAdapter

from helixweb.access.scope import WHOLE_SITE
from helixweb.charts.chart import bit_rate_text
from helixweb.deployment.announcing import announce, wake_coordinators
from helixweb.deployment.coordinators import reports_on, senders_of, sent_bytes
from helixweb.deployment.models import SERVING, Deployment, LinkWeights
from helixweb.inventory.models import BY_PEOPLE, Cluster, Link, Origin
from helixweb.inventory.network import KnownLink, Network
from helixweb.inventory.services import measured_links, records
from helixweb.planning.stored import kept, stored_plan, stored_problem
from planner import COORDINATOR, SINK, SOURCE, EdgeFlow, Plan, Problem
from planner.reweigh import reweigh
from planner.units import mbit_per_s_from_bytes_per_s
from runtime.protocol.control import LinkStats
from runtime.protocol.coordinators import is_coordinator

Ends = tuple[str, str]

_LINKS = TypeAdapter(dict[str, LinkStats])
# Smaller differences of rates are ignored: measurements vary, and weights must not follow noise.
CHANGED = 0.2
# An older measurement says little about now. But a link that got less traffic because of it is not
# measured again either, so the value counts until the link is worth another try.
STALE_AFTER_S = 60.0
FORGOTTEN_AFTER_S = 600.0
# Reports may repeat a measurement; it is stored once, while it is new.
FRESH_S = 30.0
_CLOCKS_DIFFER = timedelta(seconds=5)
# If the flow is lower than planned by this share, a new placement may be worth its moved layers.
REPLAN_BELOW = 0.8


def differs(rate: float, other: float, *, by: float = CHANGED) -> bool:
    """True if `rate` differs from `other` by more than the share `by`."""
    return abs(rate - other) > by * other


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveLink:
    """A directed link as its sender reported it `age_s` ago, and what the plan counts on; None: the
    plan does not know the link."""

    source: str
    target: str
    stats: LinkStats
    age_s: float
    planned_bytes_per_s: float | None = None

    @property
    def ends(self) -> Ends:
        return self.source, self.target

    @property
    def name(self) -> str:
        return f"{self.source} → {self.target}"

    @property
    def is_at_work(self) -> bool:
        """True if more was sent over it than what measures it."""
        return sent_bytes(self.stats) > 0 or self.stats.filler_bytes_total == 0

    @property
    def rate_age_s(self) -> float | None:
        """Age of the last confirmation of the rate; None: unknown."""
        reported_s = self.stats.bandwidth_age_s
        return None if reported_s is None else reported_s + self.age_s

    @property
    def queued_bytes(self) -> int:
        return self.stats.waiting_bytes + self.stats.in_flight_bytes

    @property
    def slow(self) -> bool:
        """True if it was seen to do clearly less than planned, lately."""
        rate, planned, age_s = (
            self.stats.bandwidth_bytes_per_s,
            self.planned_bytes_per_s,
            self.rate_age_s,
        )
        if rate is None or planned is None or age_s is None or self.stats.bandwidth_is_floor:
            return False
        return age_s <= STALE_AFTER_S and rate < planned and differs(rate, planned)

    @property
    def finding(self) -> str:
        """A sentence on a problem of the link; empty without one."""
        if self.stats.stalled:
            text = _("%(name)s takes no prompts: what was sent is not answered.")
            return text % {"name": self.name}
        if not self.slow:
            return ""
        return _(
            "%(name)s is slow: it does %(bandwidth_bytes_per_s)s, the plan counts on "
            "%(planned_bytes_per_s)s."
        ) % {
            "name": self.name,
            "bandwidth_bytes_per_s": bit_rate_text(self.stats.bandwidth_bytes_per_s or 0.0),
            "planned_bytes_per_s": bit_rate_text(self.planned_bytes_per_s or 0.0),
        }


def live_links(deployment: Deployment, *, now: datetime) -> list[LiveLink]:
    """Every link with traffic in the deployment's generation, sorted by its ends.

    Plans know one coordinator: of the links of several that can be heard, the one that most was
    sent over.
    """
    found = [
        (row.node_name, row.links, row.updated_at)
        for row in senders_of(deployment)
        if row.observed_generation == deployment.generation
    ]
    found += [
        (COORDINATOR, report.says("links"), report.at)
        for report in reports_on(deployment, heard_at=now)
    ]
    busiest: dict[Ends, tuple[LinkStats, datetime]] = {}
    for source, links, at in found:
        for target, stats in _LINKS.validate_python(links or {}).items():
            ends = source, COORDINATOR if is_coordinator(target) else target
            if ends not in busiest or sent_bytes(stats) > sent_bytes(busiest[ends][0]):
                busiest[ends] = stats, at
    problem = stored_problem(deployment.plan) if busiest else None
    return [
        LiveLink(
            source=ends[0],
            target=ends[1],
            stats=stats,
            age_s=max(0.0, (now - at).total_seconds()),
            planned_bytes_per_s=None if problem is None else _planned_rate(problem, ends),
        )
        for ends, (stats, at) in sorted(busiest.items(), key=lambda each: each[0])
    ]


def _planned_rate(problem: Problem, ends: Ends) -> float | None:
    cluster = problem.cluster
    if not all(name == COORDINATOR or cluster.has_node(name) for name in ends):
        return None
    known = cluster.link_between(*ends)
    return None if known is None else known.bandwidth_bytes_per_s


def working_links(deployment: Deployment, *, now: datetime) -> list[LiveLink]:
    """Those of `live_links` that requests use."""
    return [link for link in live_links(deployment, now=now) if link.is_at_work]


def weights_of(deployment: Deployment) -> LinkWeights | None:
    """Routing weights of its present generation; None while no link differs from the plan."""
    row: LinkWeights | None = getattr(deployment, "link_weights", None)
    return None if row is None or row.generation != deployment.generation else row


def links_at_work(*, cluster_id: int, now: datetime, **_signal: Any) -> dict[str, Any] | None:
    """Answers `inventory.signals.links_at_work_asked` with what the network's page shows; None:
    nothing is served or reported. `findings` name links that do less than planned."""
    deployment = Deployment.serving(cluster_id)
    rows = [] if deployment is None else working_links(deployment, now=now)
    if deployment is None or not rows:
        return None
    return {
        "deployment": deployment,
        "rows": rows,
        "findings": [row.finding for row in rows if row.finding],
        "has_slow": any(row.slow for row in rows),
        "weights": weights_of(deployment),
    }


def links_in_use(*, cluster_id: int, **_signal: Any) -> Iterable[Ends]:
    """Answers `inventory.signals.links_asked`: (source, target) of every link that carries flow."""
    live = Deployment.live(cluster_id)
    return () if live is None else planned_flows(live.plan)


@kept
def planned_flows(_problem: Problem, plan: Plan) -> Mapping[Ends, EdgeFlow]:
    """Planned flows by the ends of their links."""
    return {
        (
            COORDINATOR if edge.source == SOURCE else edge.source,
            COORDINATOR if edge.target == SINK else edge.target,
        ): edge
        for edge in plan.flow.edges
        if edge.flow_tokens_per_s > 0
    }


def keep_slow_rates(cluster: Cluster, *, now: datetime) -> int:
    """Write what slow links were measured to carry into the inventory, as a user wishes; returns
    how many there were. What they were before stays in the history of changes."""
    deployment = Deployment.serving(cluster.pk)
    found = [] if deployment is None else working_links(deployment, now=now)
    slow = [row for row in found if row.slow]
    network = Network(cluster)
    with transaction.atomic():
        for row in slow:
            where = {"cluster": cluster, "source": row.source, "target": row.target}
            measured = {
                "bandwidth_bytes_per_s": row.stats.bandwidth_bytes_per_s,
                "origin": Origin.MEASURED,
            }
            if own := Link.unscoped.filter(**where).first():
                records.update(own, **measured)
            elif known := network.link(*row.ends):
                records.create(Link, **where, latency_s=known.latency_s, **measured)
    return len(slow)


def keep_measured(cluster: Cluster, links: Iterable[LiveLink], *, now: datetime) -> None:
    """Store recent measurements of links that no request uses in the inventory, for the network's
    page and the next plan. Values that users entered do not change."""
    fresh = [link for link in links if _is_fresh(link)]
    if not fresh:
        return
    network = Network(cluster)
    for link in fresh:
        known = network.link(*link.ends) if set(link.ends) <= set(network.names) else None
        rate, rtt_s = link.stats.bandwidth_bytes_per_s, link.stats.rtt_s
        measured_at = now - timedelta(seconds=link.rate_age_s or link.age_s)
        if rate is None or rtt_s is None or known is None or _stays(known, measured_at):
            continue
        if link.stats.bandwidth_is_floor:
            rate = max(rate, known.bandwidth_bytes_per_s)
        measured_links.keep_measured_link(
            cluster, link.ends, bandwidth_bytes_per_s=rate, latency_s=rtt_s / 2
        )


def _is_fresh(link: LiveLink) -> bool:
    """Measured just now, by nothing but what measures."""
    known = link.stats.bandwidth_bytes_per_s is not None
    return known and not link.is_at_work and (link.rate_age_s or link.age_s) <= FRESH_S


def _stays(known: KnownLink, measured_at: datetime) -> bool:
    """True if the pair has numbers of its own that are a user's, or this measurement's already."""
    if known.of_regions:
        return False
    if known.origin != Origin.MEASURED or known.recorded_at is None:
        return known.origin in BY_PEOPLE
    return known.recorded_at > measured_at - _CLOCKS_DIFFER


def counted_rate(link: LiveLink, planned: float, *, known: float | None) -> float:
    """Bytes/s: the measured rate, where the link was seen full lately, or does more than planned;
    else what was planned with, or `known` before of a link that is hardly used since."""
    measured, age_s = link.stats.bandwidth_bytes_per_s, link.rate_age_s
    if not measured or age_s is None or age_s > FORGOTTEN_AFTER_S:
        return planned
    if age_s > STALE_AFTER_S:
        return planned if known is None else known
    return max(planned, measured) if link.stats.bandwidth_is_floor else measured


def counted_rates(links: Iterable[LiveLink], *, known: Mapping[Ends, float]) -> dict[Ends, float]:
    """Bytes/s of links whose rate differs from the planned one by more than `CHANGED`.

    Hysteresis: a link in `known` stays until it differs by less than half of that.
    """
    counted = {}
    for link in links:
        before, planned = known.get(link.ends), link.planned_bytes_per_s
        if planned is not None:
            rate = counted_rate(link, planned, known=before)
            if differs(rate, planned, by=CHANGED if before is None else CHANGED / 2):
                counted[link.ends] = rate
    return counted


def _news(deployment: Deployment, links: Iterable[LiveLink]) -> dict[Ends, float] | None:
    """Rates to compute new weights for; None if the current weights fit.

    A link that was known to differ and is back at its planned rate changes them, too.
    """
    row = weights_of(deployment)
    known = {} if row is None else _known_rates(row)
    counted = counted_rates(links, known=known)
    is_same = counted.keys() == known.keys() and not any(
        differs(rate, known[ends]) for ends, rate in counted.items()
    )
    return None if is_same else counted


def follow_links(of: Deployment, links: Sequence[LiveLink], *, now: datetime) -> None:
    """Compute weights again if one of its `live_links` does something else than the present weights
    assume. Emulated nodes report no links, so their weights stay."""
    links = [link for link in links if link.is_at_work and link.stats.bandwidth_bytes_per_s]
    if _news(of, links) is None:
        return
    with transaction.atomic():
        rows = Deployment.light(WHOLE_SITE).select_for_update(of=("self",), no_key=True)
        serving = rows.filter(status__in=SERVING, emulated=False)
        deployment = serving.filter(pk=of.pk, generation=of.generation).first()
        counted = None if deployment is None else _news(deployment, links)
        if deployment is not None and counted is not None:
            _write(deployment, counted, now=now)


def hold_weights(deployment: Deployment, *, held: bool, user: Any, now: datetime) -> None:
    """Route by the plan's weights even if links are slow, or follow links again."""
    with transaction.atomic():
        columns = {"held": held, "changed_at": now, "generation": deployment.generation}
        planned = {"flow_tokens_per_s": deployment.plan.flow_tokens_per_s}
        LinkWeights.unscoped.update_or_create(
            deployment=deployment, defaults=columns, create_defaults=columns | planned
        )
        said = (
            gettext_noop("%(user)s has requests routed by the plan's weights.")
            if held
            else gettext_noop("%(user)s has requests routed by what links do.")
        )
        announce(deployment, said, user=str(user))
        wake_coordinators(deployment.cluster_id)


def _known_rates(row: LinkWeights) -> dict[Ends, float]:
    """Bytes/s that the weights are for; links not named do as planned."""
    parted = ((name.partition("->"), rate) for name, rate in row.rates.items())
    return {(source, target): rate for (source, _arrow, target), rate in parted}


def _write(deployment: Deployment, counted: Mapping[Ends, float], *, now: datetime) -> None:
    plan = stored_plan(deployment.plan)
    found = reweigh(stored_problem(deployment.plan), plan, counted)
    if found.flow_tokens_per_s <= 0:
        return
    row, _is_new = LinkWeights.unscoped.update_or_create(
        deployment=deployment,
        defaults={
            "generation": deployment.generation,
            "rates": {f"{source}->{target}": rate for (source, target), rate in counted.items()},
            "routing_weights": {
                source: dict(targets) for source, targets in found.routing_weights.items()
            },
            "flow_tokens_per_s": found.flow_tokens_per_s,
            "changed_at": now,
        },
    )
    if not row.held:  # also where a user's wish is of a generation before
        _announce(deployment, counted, found.flow_tokens_per_s, plan.flow.value_tokens_per_s)
        wake_coordinators(deployment.cluster_id)


def _announce(
    deployment: Deployment, counted: Mapping[Ends, float], flow: float, planned: float
) -> None:
    named = [
        f"{source} → {target}: {mbit_per_s_from_bytes_per_s(rate):.3g} Mb/s"
        for (source, target), rate in sorted(counted.items())
    ]
    if not named:
        said = gettext_noop(
            "Links do what was planned with again; requests are routed by the plan's weights."
        )
    elif flow < REPLAN_BELOW * planned:
        said = gettext_noop(
            "Links that do other than planned: %(count)s (%(links)s). Requests are routed by that. "
            "The layers where they are now allow %(flow)s of %(planned)s tokens/s: another "
            "placement may do more."
        )
    else:
        said = gettext_noop(
            "Links that do other than planned: %(count)s (%(links)s). Requests are routed by that."
        )
    announce(
        deployment,
        said,
        count=len(named),
        links=", ".join(named[:3]) + (", …" if len(named) > 3 else ""),
        flow=f"{flow:.0f}",
        planned=f"{planned:.0f}",
    )
