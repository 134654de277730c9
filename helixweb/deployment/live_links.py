"""What the processes of a deployment measure of their links now. Reads only."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from pydantic import TypeAdapter

from helixweb.common.json_fields import member
from helixweb.deployment.coordinators import heard_reports
from helixweb.deployment.joint_report import sent_bytes
from helixweb.deployment.models import SERVING, Deployment, NodeAssignment
from planner.domain.cluster import COORDINATOR
from runtime.protocol.control import LinkStats
from runtime.protocol.coordinators import is_coordinator
from runtime.protocol.phases import Phase

_LINKS = TypeAdapter(dict[str, LinkStats])


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveLink:
    """A directed link as its sender told of it `age_s` ago."""

    source: str
    target: str
    stats: LinkStats
    age_s: float

    @property
    def is_at_work(self) -> bool:
        """Whether more was sent over it than what measures it."""
        return sent_bytes(self.stats) > 0 or self.stats.filler_bytes_total == 0

    @property
    def stats_now(self) -> LinkStats:
        """As told, with the age that its rate has by now."""
        told_s = self.stats.bandwidth_age_s
        age_s = None if told_s is None else told_s + self.age_s
        return self.stats.model_copy(update={"bandwidth_age_s": age_s})

    @property
    def ends(self) -> tuple[str, str]:
        return self.source, self.target


def serving_deployment(cluster_id: int) -> Deployment | None:
    """What the cluster serves, without its documents."""
    return (
        Deployment.objects.filter(cluster=cluster_id, status__in=SERVING)
        .select_related("plan")
        .defer("serving_plan", "plan__document", "plan__problem")
        .first()
    )


def live_links(deployment: Deployment, *, now: datetime) -> list[LiveLink]:
    """Every link that something was sent over in the deployment's generation, by its ends.

    Plans know one coordinator: of the links of several that can be heard, the one that most was
    sent over.
    """
    rows = NodeAssignment.objects.filter(
        deployment=deployment,
        observed_generation=deployment.generation,
        phase=Phase.READY.value,
        stats__isnull=False,
    )
    # Most of many nodes send to few others, or to none lately.
    telling = rows.annotate(links=member("stats", "links")).exclude(links={})
    told = telling.values_list("node_name", "links", "updated_at")
    found = [
        link
        for name, links, at in told
        if links
        for link in _links(name, _LINKS.validate_python(links).items(), at=at, now=now)
    ]
    # A report also has every request that ended lately: not all of it is read.
    reports = heard_reports(deployment.cluster_id, now=now)
    said = reports.values_list("report__generation", "report__links", "at")
    for generation, links, at in said:
        if links and generation == deployment.generation:
            sent = _LINKS.validate_python(links).items()
            found += _links(COORDINATOR, sent, at=at, now=now)
    busiest: dict[tuple[str, str], LiveLink] = {}
    for link in found:
        known = busiest.setdefault(link.ends, link)
        if sent_bytes(link.stats) > sent_bytes(known.stats):
            busiest[link.ends] = link
    return sorted(busiest.values(), key=lambda link: link.ends)


def _links(
    source: str, links: Iterable[tuple[str, LinkStats]], *, at: datetime, now: datetime
) -> list[LiveLink]:
    age_s = max(0.0, (now - at).total_seconds())
    return [
        LiveLink(
            source=source,
            target=COORDINATOR if is_coordinator(target) else target,
            stats=stats,
            age_s=age_s,
        )
        for target, stats in links
    ]
