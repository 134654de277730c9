"""The steps from an empty site to the first token of a cluster, and how far each one is.

Reads only.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from statistics import mean
from typing import Any

from django.db.models import Q
from django.urls import reverse
from django.utils.translation import gettext as _

from helixweb.charts.chart import bytes_text
from helixweb.common.models import ApiKey
from helixweb.deployment.models import STANDING, Deployment, LatestReport, Profiling, Status
from helixweb.deployment.profiling import nodes_to_measure, nodes_without_profile
from helixweb.deployment.services.obstacles import find_obstacles
from helixweb.inventory.models import Cluster, LanguageModel, NodeState
from helixweb.inventory.network import Network
from helixweb.inventory.node_list import state_counts
from helixweb.monitoring.models import TracedRequest
from helixweb.planning.models import Plan, PlanRun
from runtime.protocol.phases import Phase

NAMED = 3  # of more nodes only the first are named


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step of the set-up. `text` is its progress, or what it waits for; `action` is the label of
    the link to its page, or, with `fields`, of the button that posts these. `progress`: 0 to 1
    while something runs, else None."""

    title: str
    text: str
    done: bool = False
    url: str = ""
    action: str = ""
    progress: float | None = None
    fields: Mapping[str, int] | None = None


def has_served(cluster: Cluster) -> bool:
    """True if what is deployed was ready, and the cluster has put out a token."""
    live = Deployment.live(cluster.pk)
    return live is not None and live.ready_at is not None and _asked(cluster, live).done


def checklist(cluster: Cluster | None, *, user: Any, now: datetime) -> tuple[Step, ...]:
    """Model, machines, measurements, plan, deployment, first answer, and an API key of `user`."""
    live = Deployment.live(cluster.pk) if cluster else None
    plan = Plan.unscoped.filter(cluster=cluster).select_related("model").first()
    run = PlanRun.unscoped.filter(cluster=cluster).select_related("model").first()
    model = _model(live, plan, run)
    return (
        _model_step(model),
        _machines(cluster, now),
        _speeds(cluster, model),
        _links(cluster),
        _compute(cluster, model, plan, run, now),
        _deploy(live, plan, now),
        _asked(cluster, live),
        _api_key(cluster, user, now),
    )


def _model(live: Deployment | None, plan: Plan | None, run: PlanRun | None) -> LanguageModel | None:
    """The model that is served, else that of the last plan, else the newest that nodes can load."""
    for row in (live, plan, run):
        if row is not None:
            return row.model
    newest = LanguageModel.objects.order_by("-pk")
    return newest.exclude(checkpoint="").first() or newest.first()


def _model_step(model: LanguageModel | None) -> Step:
    if model is None:
        return Step(
            title=_("Add a model"),
            text=_("Name a folder, a GGUF file, or a repository of a model hub."),
            url=reverse("model-new"),
            action=_("New model"),
        )
    known = {
        "model": model.name,
        "layers": model.num_layers,
        "size": bytes_text(model.total_bytes),
    }
    return Step(
        title=_("Add a model"),
        done=bool(model.checkpoint),
        text=_("%(model)s: %(layers)s layers, %(size)s.") % known
        if model.checkpoint
        else _("%(model)s has no checkpoint yet, so nodes can neither measure nor load it.")
        % known,
        url=reverse("model", args=[model.pk]),
        action=_("Model"),
    )


def _machines(cluster: Cluster | None, now: datetime) -> Step:
    title = _("Add machines")
    if cluster is None:
        return Step(
            title=title,
            text=_("Create a cluster and let machines join it, or import a problem file."),
            url=reverse("clusters"),
            action=_("Clusters"),
        )
    states = state_counts(cluster.nodes.all(), now=now)
    nodes = sum(states.values())
    joined = nodes - states[NodeState.DECLARED.value]
    has_coordinator = cluster.coordinators.exists()
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
    if not has_coordinator:
        text += " " + _("No coordinator has joined yet.")
    return Step(
        title=title,
        done=0 < joined == nodes and has_coordinator,
        text=text,
        url=reverse("cluster", args=[cluster.pk]),
        action=_("Nodes and join command"),
        progress=joined / nodes if 0 < joined < nodes else None,
    )


def _speeds(cluster: Cluster | None, model: LanguageModel | None) -> Step:
    """A profile of the model for every node; of those that are measured now, how far they are."""
    title = _("Measure the nodes")
    nodes = cluster.nodes.count() if cluster else 0
    if cluster is None or model is None or not nodes:
        text = _("Needs a model.") if nodes else _("Needs machines.")
        return Step(title=title, text=text)
    unmeasured = nodes_without_profile(cluster, model)
    missing = unmeasured.count()
    sentence = _("%(known)s of %(nodes)s nodes have a profile for %(model)s.") % {
        "known": nodes - missing,
        "nodes": nodes,
        "model": model.name,
    }
    orders = Profiling.unscoped.filter(node__cluster=cluster, model=model).select_related("node")
    standing = list(orders.filter(state__in=STANDING).order_by("node__name"))
    failed = orders.filter(state=Profiling.State.FAILED, node__in=unmeasured)
    last_failed = failed.exclude(node__in=[row.node_id for row in standing]).first()
    if standing:
        named = [f"{row.node.name} {row.done:.0%}" for row in standing[:NAMED]]
        more = ["…"] if len(standing) > NAMED else []
        sentence += " " + _("Under way: %(nodes)s.") % {"nodes": ", ".join(named + more)}
    if last_failed is not None:
        sentence += " " + _("%(node)s failed: %(message)s") % {
            "node": last_failed.node.name,
            "message": last_failed.message,
        }
    can_order = bool(nodes_to_measure(cluster, model))
    if can_order:
        url, action = reverse("cluster-measure", args=[cluster.pk]), _("Measure all nodes")
    elif missing:
        url, action = f"{reverse('cluster', args=[cluster.pk])}#measuring", title
    else:
        url, action = reverse("profiles"), _("Profiles")
    return Step(
        title=title,
        done=not missing,
        text=sentence,
        url=url,
        action=action,
        progress=mean(row.done for row in standing) if standing else None,
        fields={"model": model.pk, "overview": 1} if can_order else None,
    )


def _links(cluster: Cluster | None) -> Step:
    title = _("Measure the links")
    if cluster is None:
        return Step(title=title, text=_("Needs machines."))
    network = Network(cluster)
    known = network.known
    return Step(
        title=title,
        done=0 < known == network.possible,
        text=_("%(known)s of %(possible)s directed links are known.")
        % {"known": known, "possible": network.possible}
        if network.possible
        else _("Needs machines."),
        url=reverse("network", args=[cluster.pk]),
        action=_("Network"),
    )


def _compute(
    cluster: Cluster | None,
    model: LanguageModel | None,
    plan: Plan | None,
    run: PlanRun | None,
    now: datetime,
) -> Step:
    title = _("Compute a plan")
    if run is not None and not run.is_finished and cluster is not None:
        text = (
            _("Searching; the best so far carries %(flow)s tokens/s.")
            % {"flow": f"{run.flow_tokens_per_s:,.0f}"}
            if run.flow_tokens_per_s
            else _("The last search is %(status)s.") % {"status": _(run.status)}
        )
        elapsed_s = (now - run.started_at).total_seconds() if run.started_at else 0.0
        return Step(
            title=title,
            done=plan is not None,
            text=text,
            url=reverse("plan-run", args=[run.pk]),
            action=_("Search"),
            progress=min(1.0, elapsed_s / run.options["time_limit_s"]),
        )
    new = reverse("plan-run-new")
    query = f"?cluster={cluster.pk}" if cluster else ""
    query += f"&model={model.pk}" if query and model else ""
    if plan is not None:
        text = _("%(model)s: max flow %(flow_tokens_per_s)s tokens/s.") % {
            "model": plan.model,
            "flow_tokens_per_s": f"{plan.flow_tokens_per_s:,.0f}",
        }
    elif run is not None:
        text = _("The last search is %(status)s.") % {"status": _(run.status)}
        text += f" {run.error}" if run.error else ""
    else:
        text = _("No search for a plan yet.")
    return Step(
        title=title, done=plan is not None, text=text, url=new + query, action=_("Compute a plan")
    )


def _deploy(live: Deployment | None, plan: Plan | None, now: datetime) -> Step:
    title = _("Deploy")
    if live is not None:
        text = _("%(model_name)s is %(status)s.") % {
            "model_name": live.model_name,
            "status": _(live.status),
        }
        text += f" {live.message}" if live.message else ""
        phases = list(live.assignments.values_list("phase", "observed_generation"))
        ready = sum(phase == (Phase.READY.value, live.generation) for phase in phases)
        is_loading = live.status == Status.DEPLOYING and phases
        if is_loading:
            text += " " + _("%(ready)s of %(nodes)s nodes are ready.") % {
                "ready": ready,
                "nodes": len(phases),
            }
        return Step(
            title=title,
            done=live.ready_at is not None,
            text=text,
            url=reverse("deployment", args=[live.pk]),
            action=_("Deployment"),
            progress=ready / len(phases) if is_loading else None,
        )
    if plan is None:
        return Step(title=title, text=_("Needs a plan."))
    obstacles = find_obstacles(plan, now=now)
    return Step(
        title=title,
        text=obstacles[0] if obstacles else _("The plan can be deployed now."),
        url=f"{reverse('deployment-new')}?plan={plan.pk}",
        action=_("Deploy the plan"),
    )


def _asked(cluster: Cluster | None, live: Deployment | None) -> Step:
    reports = LatestReport.unscoped.filter(coordinator__cluster=cluster)
    tokens = sum(reports.values_list("report__output_tokens_total", flat=True))
    served = TracedRequest.unscoped.filter(cluster=cluster, output_tokens__gt=0)
    if tokens:
        text = _("%(tokens)s tokens put out since the coordinator started.") % {
            "tokens": f"{tokens:,}"
        }
    else:
        text = _("No token yet.") if live else _("Needs a deployment.")
    query = f"?deployment={live.pk}" if live else ""
    return Step(
        title=_("Ask the model"),
        done=tokens > 0 or served.exists(),
        text=text,
        url=reverse("playground") + query if live else "",
        action=_("Playground"),
    )


def _api_key(cluster: Cluster | None, user: Any, now: datetime) -> Step:
    """The step of an API key for programs; the playground needs none."""
    usable = ApiKey.objects.filter(
        Q(expires_at=None) | Q(expires_at__gt=now),
        Q(cluster=None) | Q(cluster=cluster),
        user=user,
        revoked_at=None,
    )
    keys = sum("serve" in scopes for scopes in usable.values_list("scopes", flat=True))
    return Step(
        title=_("Create an API key"),
        done=keys > 0,
        text=_("Your keys that may send requests: %(count)s.") % {"count": keys}
        if keys
        else _("Programs send it with every request; the playground needs none."),
        url=reverse("api-keys"),
        action=_("API keys"),
    )
