"""What the network's page shows of links at work: measured beside planned, lanes, queues, ages."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils.translation import gettext as _

from helixweb.charts.quantities import bit_rate_text
from helixweb.deployment.link_rates import STALE_AFTER_S, differs
from helixweb.deployment.live_links import LiveLink, live_links, serving_deployment
from helixweb.deployment.models import Deployment, LinkWeights
from helixweb.deployment.weighing import planned_rates
from helixweb.planning.stored import stored_problem
from runtime.protocol.control import LinkStats


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRow:
    """A link and what the plan counts on; `slow`: it was seen to do clearly less."""

    source: str
    target: str
    stats: LinkStats
    age_s: float
    planned_bytes_per_s: float | None
    slow: bool

    @property
    def rate_age_s(self) -> float | None:
        """How long ago the rate was last confirmed; None: it is not known."""
        told_s = self.stats.bandwidth_age_s
        return None if told_s is None else told_s + self.age_s

    @property
    def queued_bytes(self) -> int:
        return self.stats.waiting_bytes + self.stats.in_flight_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LinksAtWork:
    """`findings` name links that do less than planned, in sentences."""

    deployment: Deployment
    rows: Sequence[LinkRow]
    findings: Sequence[str]
    weights: LinkWeights | None

    @property
    def has_slow(self) -> bool:
        return any(row.slow for row in self.rows)


def links_at_work(*, cluster_id: int, now: datetime, **_: Any) -> LinksAtWork | None:
    """Answers `inventory.signals.links_at_work_asked`; None: nothing is served or told of links."""
    deployment = serving_deployment(cluster_id)
    if deployment is None:
        return None
    links = [link for link in live_links(deployment, now=now) if link.is_at_work]
    if not links:
        return None
    rows = link_rows(deployment, links)
    return LinksAtWork(
        deployment=deployment,
        rows=rows,
        findings=[sentence for row in rows if (sentence := _finding(row))],
        weights=LinkWeights.objects.filter(
            deployment=deployment, generation=deployment.generation
        ).first(),
    )


def link_rows(deployment: Deployment, links: list[LiveLink]) -> list[LinkRow]:
    """Beside what the deployment's plan was made with."""
    planned = planned_rates(stored_problem(deployment.plan), links)
    return [_row(link, planned.get(link.ends)) for link in links]


def _row(link: LiveLink, planned_bytes_per_s: float | None) -> LinkRow:
    stats = link.stats
    measured, age_s = stats.bandwidth_bytes_per_s, link.stats_now.bandwidth_age_s
    is_known = measured is not None and age_s is not None and age_s <= STALE_AFTER_S
    return LinkRow(
        source=link.source,
        target=link.target,
        stats=stats,
        age_s=link.age_s,
        planned_bytes_per_s=planned_bytes_per_s,
        slow=is_known
        and not stats.bandwidth_is_floor
        and planned_bytes_per_s is not None
        and measured is not None
        and measured < planned_bytes_per_s
        and differs(measured, planned_bytes_per_s),
    )


def _finding(row: LinkRow) -> str:
    """Empty if nothing is wrong."""
    name = f"{row.source} → {row.target}"
    if row.stats.stalled:
        return _("%(name)s takes no prompts: what was sent is not answered.") % {"name": name}
    if row.slow and row.stats.bandwidth_bytes_per_s is not None:
        return _(
            "%(name)s is slow: it does %(bandwidth_bytes_per_s)s, the plan counts on "
            "%(planned_bytes_per_s)s."
        ) % {
            "name": name,
            "bandwidth_bytes_per_s": bit_rate_text(row.stats.bandwidth_bytes_per_s),
            "planned_bytes_per_s": bit_rate_text(row.planned_bytes_per_s or 0.0),
        }
    return ""
