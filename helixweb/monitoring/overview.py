"""What the overview shows of the cluster in focus and of the others. Reads only."""

from datetime import datetime
from typing import Any

from django.utils import timezone

from helixweb.common.models import Event
from helixweb.common.sentences import in_words
from helixweb.deployment.models import LIVE, Deployment
from helixweb.deployment.services.losses import outage_of
from helixweb.inventory.models import Cluster, NodeState
from helixweb.inventory.node_list import state_counts_by_cluster
from helixweb.monitoring.checklist import checklist, has_served
from helixweb.monitoring.history import with_newest
from helixweb.monitoring.moment import Moment
from helixweb.planning.models import Plan
from helixweb.planning.newer_measurements import NewerMeasurements, newer_measurements

LAST_EVENTS = 12


def focus(scope: Any) -> Cluster | None:
    """The cluster that pages show unless one is asked for: what serves, else the newest."""
    live = (
        Deployment.objects.within(scope)
        .filter(status__in=LIVE)
        .select_related("cluster")
        .defer("serving_plan")
        .first()
    )
    return live.cluster if live else Cluster.objects.within(scope).order_by("-pk").first()


def overview_of(
    scope: Any, moment: Moment | None, *, user: Any, is_refresh: bool
) -> dict[str, Any]:
    """Everything at once, for `user`; a refresh leaves out the steps once all have been taken.

    `serving` is what `cluster` serves, or `outage` says why nothing does; `sample` its current
    numbers. `newer`: what was measured since the plan that is served, else since the newest one.
    None: not there. `is_set_up`: what is deployed has put out a token. `is_moving`: a step is
    under way, which reports its progress to no topic of the page. `lines` are of the table of
    clusters, `line` that of `cluster`; `news` what happened, as sentences.
    """
    now = moment.now if moment else timezone.now()
    cluster, serving = (moment.cluster, moment.serving) if moment else (None, None)
    lines = _lines(scope, now)
    live = serving.deployment if serving else None
    is_set_up = cluster is not None and has_served(cluster)
    steps = () if is_set_up and is_refresh else checklist(cluster, user=user, now=now)
    return {
        "cluster": cluster,
        "line": next((line for line in lines if line["cluster"] == cluster), None),
        "is_set_up": is_set_up,
        "steps": steps,
        "is_moving": any(step.progress is not None for step in steps),
        "serving": serving,
        "outage": outage_of(live, now=now) if live else None,
        "newer": _newer(cluster, live),
        "sample": moment and moment.sample,
        "numbers": moment and moment.numbers,
        "lines": lines,
        "news": _news(scope),
    }


def _newer(cluster: Cluster | None, live: Deployment | None) -> NewerMeasurements | None:
    plans = Plan.unscoped.filter(cluster=cluster).defer("document", "problem")
    plan = live.plan if live else plans.exclude(run__what_if__gt="").first()
    return newer_measurements(plan) if plan else None


def _lines(scope: Any, now: datetime) -> list[dict[str, Any]]:
    live = {
        deployment.cluster_id: deployment
        for deployment in Deployment.objects.within(scope)
        .filter(status__in=LIVE)
        .select_related("model")
        .defer("serving_plan")
    }
    counts = state_counts_by_cluster(now=now)
    return [
        {
            "cluster": cluster,
            "nodes": sum(counts.get(cluster.pk, {}).values()),
            "online": counts.get(cluster.pk, {}).get(NodeState.ONLINE.value, 0),
            "deployment": live.get(cluster.pk),
            "output_tokens_per_s": cluster.newest_output,
            "simulated": cluster.newest_plan is not None,
        }
        for cluster in with_newest(Cluster.objects.within(scope), now=now)
    ]


def _news(scope: Any) -> list[dict[str, Any]]:
    names = {f"cluster:{cluster.pk}": cluster.name for cluster in Cluster.objects.within(scope)}
    rows = Event.objects.filter(topic__in=list(names), data__text__isnull=False).order_by("-pk")
    return [
        {"at": row.created_at, "cluster": names[row.topic], "text": in_words(row.data)}
        for row in rows[:LAST_EVENTS]
    ]
