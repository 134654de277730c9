"""What the overview shows of the cluster in focus and of the others. Reads only."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from helixweb.common.models import Event
from helixweb.common.sentences import in_words
from helixweb.deployment.models import LIVE, Deployment
from helixweb.inventory.models import Cluster, NodeState
from helixweb.inventory.node_list import state_counts_by_cluster
from helixweb.monitoring.checklist import Step, checklist
from helixweb.monitoring.history import current_sample, with_newest
from helixweb.monitoring.models import MetricSample
from helixweb.monitoring.presentation import Serving, numbers, serving_of

LAST_EVENTS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLine:
    """One line of the table of clusters."""

    cluster: Cluster
    nodes: int
    online: int
    deployment: Deployment | None
    output_tokens_per_s: float | None
    simulated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NewsItem:
    """Something that happened in a cluster, as a sentence."""

    at: datetime
    cluster: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """`serving` is what `cluster` serves; `sample` its current numbers. None: not there."""

    cluster: Cluster | None
    line: ClusterLine | None
    steps: tuple[Step, ...]
    serving: Serving | None
    sample: MetricSample | None
    lines: tuple[ClusterLine, ...]
    news: tuple[NewsItem, ...]

    @property
    def is_set_up(self) -> bool:
        return not self.steps

    @property
    def numbers(self) -> Mapping[str, Any]:
        """Of the sample; None each while there is none."""
        return numbers(self.sample)

    @property
    def efficiency(self) -> float | None:
        return self.serving.efficiency(self.sample) if self.serving else None


def focus() -> Cluster | None:
    """The cluster that pages show unless one is asked for: what serves, else the newest."""
    live = (
        Deployment.objects.filter(status__in=LIVE)
        .select_related("cluster")
        .defer("serving_plan")
        .first()
    )
    return live.cluster if live else Cluster.objects.order_by("-pk").first()


def overview_of(cluster: Cluster | None, *, now: datetime) -> Overview:
    """Everything at once."""
    lines = tuple(_lines(now))
    sample = current_sample(cluster, now=now) if cluster else None
    return Overview(
        cluster=cluster,
        line=next((line for line in lines if line.cluster == cluster), None),
        steps=checklist(cluster, now=now),
        serving=serving_of(cluster, sample) if cluster else None,
        sample=sample,
        lines=lines,
        news=_news(),
    )


def _lines(now: datetime) -> list[ClusterLine]:
    live = {
        deployment.cluster_id: deployment
        for deployment in Deployment.objects.filter(status__in=LIVE)
        .select_related("model")
        .defer("serving_plan")
    }
    counts = state_counts_by_cluster(now=now)
    lines = []
    for cluster, sample in with_newest(Cluster.objects.all(), now=now):
        states = counts.get(cluster.pk, {})
        lines.append(
            ClusterLine(
                cluster=cluster,
                nodes=sum(states.values()),
                online=states.get(NodeState.ONLINE.value, 0),
                deployment=live.get(cluster.pk),
                output_tokens_per_s=sample.output_tokens_per_s if sample else None,
                simulated=bool(sample and sample.simulated),
            )
        )
    return lines


def _news() -> tuple[NewsItem, ...]:
    names = {f"cluster:{cluster.pk}": cluster.name for cluster in Cluster.objects.all()}
    rows = Event.objects.filter(topic__in=list(names), data__text__isnull=False).order_by("-pk")
    return tuple(
        NewsItem(at=row.created_at, cluster=names[row.topic], text=in_words(row.data))
        for row in rows[:LAST_EVENTS]
    )
