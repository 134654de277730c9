"""The way from nothing to the first token, as far as a cluster has come. Reads only."""

from dataclasses import dataclass
from datetime import datetime

from django.urls import reverse

from helixweb.deployment.models import Deployment, LatestReport
from helixweb.deployment.services import find_obstacles
from helixweb.inventory.models import Cluster, NodeState
from helixweb.inventory.node_list import state_counts
from helixweb.inventory.presentation import cluster_network
from helixweb.monitoring.presentation import live_deployment
from helixweb.planning.models import Plan, PlanRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """`text` says how far it is; `action` is the words of the link to where it is done."""

    title: str
    done: bool
    text: str
    url: str
    action: str


def checklist(cluster: Cluster | None, *, now: datetime) -> tuple[Step, ...]:
    """Add nodes, know the network, plan, deploy, chat; empty once all that has worked."""
    if cluster is None:
        return _before_any_cluster()
    live, first_token = live_deployment(cluster), _first_token(cluster)
    if live is not None and live.ready_at is not None and first_token.done:
        return ()
    plans = Plan.objects.filter(cluster=cluster).select_related("model")
    plan = plans.defer("document", "problem").first()
    return (
        _nodes(cluster, now),
        _network(cluster),
        _plan(cluster, plan),
        _deploy(live, plan, now),
        first_token,
    )


def _before_any_cluster() -> tuple[Step, ...]:
    return (
        Step(
            title="Add nodes",
            done=False,
            text="Make a cluster and let machines join it, or import a problem file.",
            url=reverse("clusters"),
            action="Clusters",
        ),
        *(
            Step(title=title, done=False, text=text, url="", action="")
            for title, text in (
                ("Know the network", "Links between the nodes."),
                ("Plan", "The best placement of a model's layers, against a proven bound."),
                ("Deploy", "The nodes load their layers."),
                ("Chat", "The first token."),
            )
        ),
    )


def _nodes(cluster: Cluster, now: datetime) -> Step:
    states = state_counts(cluster.nodes.all(), now=now)
    nodes = sum(states.values())
    joined = nodes - states[NodeState.DECLARED.value]
    if not nodes:
        text = "No node yet. Run the join command on each machine."
    elif joined < nodes:
        text = f"{nodes} declared, {joined} of them joined."
    else:
        text = f"{joined} joined, {states[NodeState.ONLINE.value]} online."
    return Step(
        title="Add nodes",
        done=nodes > 0,
        text=text,
        url=reverse("cluster", args=[cluster.pk]),
        action="Nodes and join command",
    )


def _network(cluster: Cluster) -> Step:
    network = cluster_network(cluster)
    known = network.known
    return Step(
        title="Know the network",
        done=0 < known == network.possible,
        text=f"{known} of {network.possible} directed links are known."
        if network.possible
        else "No pair of machines yet.",
        url=reverse("network", args=[cluster.pk]),
        action="Network",
    )


def _plan(cluster: Cluster, plan: Plan | None) -> Step:
    if plan is not None:
        text = f"{plan.model}: max flow {plan.flow_tokens_per_s:,.0f} tokens/s."
    else:
        run = PlanRun.objects.filter(cluster=cluster).defer("problem").first()
        text = f"The last search is {run.status}." if run else "No search for a plan yet."
    return Step(
        title="Plan",
        done=plan is not None,
        text=text,
        url=f"{reverse('plan-run-new')}?cluster={cluster.pk}",
        action="Compute a plan",
    )


def _deploy(live: Deployment | None, plan: Plan | None, now: datetime) -> Step:
    if live is not None:
        return Step(
            title="Deploy",
            done=live.ready_at is not None,
            text=f"{live.model_name} is {live.status}.",
            url=reverse("deployment", args=[live.pk]),
            action="Deployment",
        )
    if plan is None:
        return Step(
            title="Deploy",
            done=False,
            text="Needs a plan.",
            url=reverse("deployments"),
            action="Deployments",
        )
    obstacles = find_obstacles(plan, now=now)
    return Step(
        title="Deploy",
        done=False,
        text=obstacles[0] if obstacles else "The plan can be deployed now.",
        url=f"{reverse('deployment-new')}?plan={plan.pk}",
        action="Deploy the plan",
    )


def _first_token(cluster: Cluster) -> Step:
    row = LatestReport.objects.filter(coordinator__cluster=cluster).first()
    tokens = row.report["output_tokens_total"] if row else 0
    return Step(
        title="Chat",
        done=tokens > 0,
        text=f"{tokens:,} tokens put out since the coordinator started."
        if tokens
        else "No token yet since the coordinator started.",
        url=reverse("playground"),
        action="Playground",
    )
