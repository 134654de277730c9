"""The way from nothing to the first token, as far as a cluster has come. Reads only."""

from dataclasses import dataclass
from datetime import datetime

from django.urls import reverse
from django.utils.translation import gettext as _

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
            title=_("Add nodes"),
            done=False,
            text=_("Make a cluster and let machines join it, or import a problem file."),
            url=reverse("clusters"),
            action=_("Clusters"),
        ),
        *(
            Step(title=title, done=False, text=text, url="", action="")
            for title, text in (
                (_("Know the network"), _("Links between the nodes.")),
                (_("Plan"), _("The best placement of a model's layers, against a proven bound.")),
                (_("Deploy"), _("The nodes load their layers.")),
                (_("Chat"), _("The first token.")),
            )
        ),
    )


def _nodes(cluster: Cluster, now: datetime) -> Step:
    states = state_counts(cluster.nodes.all(), now=now)
    nodes = sum(states.values())
    joined = nodes - states[NodeState.DECLARED.value]
    if not nodes:
        text = _("No node yet. Run the join command on each machine.")
    elif joined < nodes:
        text = _("%(nodes)s declared, %(joined)s of them joined.") % {
            "nodes": nodes,
            "joined": joined,
        }
    else:
        text = _("%(joined)s joined, %(online)s online.") % {
            "joined": joined,
            "online": states[NodeState.ONLINE.value],
        }
    return Step(
        title=_("Add nodes"),
        done=nodes > 0,
        text=text,
        url=reverse("cluster", args=[cluster.pk]),
        action=_("Nodes and join command"),
    )


def _network(cluster: Cluster) -> Step:
    network = cluster_network(cluster)
    known = network.known
    return Step(
        title=_("Know the network"),
        done=0 < known == network.possible,
        text=_("%(known)s of %(possible)s directed links are known.")
        % {"known": known, "possible": network.possible}
        if network.possible
        else _("No pair of machines yet."),
        url=reverse("network", args=[cluster.pk]),
        action=_("Network"),
    )


def _plan(cluster: Cluster, plan: Plan | None) -> Step:
    if plan is not None:
        text = _("%(model)s: max flow %(flow_tokens_per_s)s tokens/s.") % {
            "model": plan.model,
            "flow_tokens_per_s": f"{plan.flow_tokens_per_s:,.0f}",
        }
    else:
        run = PlanRun.objects.filter(cluster=cluster).defer("problem").first()
        text = (
            _("The last search is %(status)s.") % {"status": _(run.status)}
            if run
            else _("No search for a plan yet.")
        )
    return Step(
        title=_("Plan"),
        done=plan is not None,
        text=text,
        url=f"{reverse('plan-run-new')}?cluster={cluster.pk}",
        action=_("Compute a plan"),
    )


def _deploy(live: Deployment | None, plan: Plan | None, now: datetime) -> Step:
    if live is not None:
        return Step(
            title=_("Deploy"),
            done=live.ready_at is not None,
            text=_("%(model_name)s is %(status)s.")
            % {"model_name": live.model_name, "status": _(live.status)},
            url=reverse("deployment", args=[live.pk]),
            action=_("Deployment"),
        )
    if plan is None:
        return Step(
            title=_("Deploy"),
            done=False,
            text=_("Needs a plan."),
            url=reverse("deployments"),
            action=_("Deployments"),
        )
    obstacles = find_obstacles(plan, now=now)
    return Step(
        title=_("Deploy"),
        done=False,
        text=obstacles[0] if obstacles else _("The plan can be deployed now."),
        url=f"{reverse('deployment-new')}?plan={plan.pk}",
        action=_("Deploy the plan"),
    )


def _first_token(cluster: Cluster) -> Step:
    told = LatestReport.objects.filter(coordinator__cluster=cluster)
    tokens = sum(told.values_list("report__output_tokens_total", flat=True))
    return Step(
        title=_("Chat"),
        done=tokens > 0,
        text=_("%(tokens)s tokens put out since the coordinator started.")
        % {"tokens": f"{tokens:,}"}
        if tokens
        else _("No token yet since the coordinator started."),
        url=reverse("playground"),
        action=_("Playground"),
    )
