"""Pages of deployments, the form that deploys a plan, and what users do there."""

from collections.abc import Callable, Mapping
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from rest_framework import serializers

from helixweb.access.needs import OPERATOR, VIEWER, needs
from helixweb.common.options import form_field, initial_of, options_from
from helixweb.common.pages import by_htmx, follows_events, form_page, page_of, refusals_shown
from helixweb.common.queries import parsed_id, query_id
from helixweb.common.refusals import Conflict
from helixweb.deployment.api import DeployRequestSerializer
from helixweb.deployment.coordinators import (
    change_of,
    coordinator_says,
    curl_command,
    endpoint_urls,
    requests_waiting,
)
from helixweb.deployment.links import hold_weights, keep_slow_rates
from helixweb.deployment.models import SERVING, STANDING, Deployment, Drain, Profiling, Repair
from helixweb.deployment.node_log import log_view
from helixweb.deployment.options import DeployOptions
from helixweb.deployment.profiling import cancel_profiling, measure_cluster, order_profiling
from helixweb.deployment.services import deploying, desired, draining, losses, orders, repairing
from helixweb.deployment.settling import refusals_of
from helixweb.deployment.stages import instances_view, node_rows, placed_names, timeline_of
from helixweb.inventory.models import Cluster, LanguageModel, Node
from helixweb.planning.models import Plan
from planner import options_of

MAX_GENERATION = 2**31 - 1
DEPLOYMENTS_PER_PAGE = 30
NODES_PER_PAGE = 100


class ByNodeField(forms.Field):
    """`NODE=VALUE` separated by blanks or commas; a mapping when cleaned, by the REST API's field
    of the same name."""

    widget = forms.TextInput

    def __init__(self, rest: serializers.Field[Any, Any, Any, Any], **kwargs: Any) -> None:
        super().__init__(required=False, **kwargs)
        self._rest = rest

    def prepare_value(self, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        return " ".join(f"{node}={one}" for node, one in value.items())

    def to_python(self, value: Any) -> dict[str, Any]:
        found: dict[str, str] = {}
        for pair in str(value or "").replace(",", " ").replace(";", " ").split():
            name, _equals, found_value = pair.partition("=")
            if not name or name in found:
                raise forms.ValidationError(
                    _("%(word)s does not say which node, or is there twice; write NODE=VALUE.")
                    % {"word": repr(pair)}
                )
            found[name] = found_value
        try:
            return dict(self._rest.run_validation(found))
        except serializers.ValidationError as error:
            whys: Any = error.detail
            raise forms.ValidationError(
                [f"{name}={found[name]}: {' '.join(why)}" for name, why in whys.items()]
            ) from error


class DeployForm(forms.Form):
    """A field that is blank or not sent takes its default: a plan's page has a button alone."""

    # The cluster's generation when the page was shown: the one that the user wants to replace.
    seen_generation = forms.IntegerField(
        required=False, min_value=0, max_value=MAX_GENERATION, widget=forms.HiddenInput
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        rest = DeployRequestSerializer().fields
        for name, option in options_of(DeployOptions).items():
            if option.is_several:
                spec = option.spec
                label, help_text = gettext_lazy(spec.label), gettext_lazy(spec.help)
                self.fields[name] = ByNodeField(rest[name], label=label, help_text=help_text)
            else:
                self.fields[name] = form_field(option, required=False)


@needs(VIEWER)
def deployments(request: HttpRequest) -> HttpResponse:
    """All deployments, newest first."""
    rows = Deployment.light(request).select_related("created_by")
    page = page_of(request, rows, size=DEPLOYMENTS_PER_PAGE)
    return render(request, "deployment/deployments.html", {"page": page})


@needs(OPERATOR, OPERATOR)
def deployment_new(request: HttpRequest) -> HttpResponse:
    """`?plan=`: choose options; POST deploys and shows the deployment.

    `?again=`: with the options that this deployment of the plan had; without it, with those of
    what runs, where the plan can be served beside that.
    """
    plan = get_object_or_404(
        Plan.objects.within(request).select_related("cluster", "model", "run"),
        pk=query_id(request, "plan"),
    )
    seen = {"seen_generation": desired.current_generation(plan.cluster_id)}
    again = plan.deployments.filter(pk=query_id(request, "again")).first()
    kept = {} if again is not None else deploying.options_kept(plan)
    initial = seen | (kept if again is None else initial_of(again.options))
    form = DeployForm(request.POST if request.method == "POST" else None, initial=initial)
    refusals: tuple[str, ...] = ()
    if request.method == "POST" and form.is_valid():
        try:
            deployment = deploying.deploy(
                plan,
                user=request.user,
                options=options_from(DeployOptions, form.cleaned_data),
                now=timezone.now(),
                seen_generation=form.cleaned_data["seen_generation"],
            )
        except deploying.DeployRefused as error:
            refusals = error.reasons
            typed = request.POST.copy()
            typed["seen_generation"] = str(seen["seen_generation"])  # pressed again, it means this
            form.data = typed
        else:
            return redirect("deployment", deployment.pk)
    context = {"plan": plan, "refusals": refusals, "again": again, "kept": kept}
    return form_page(request, "deployment/deployment_new.html", form, **context)


@needs(VIEWER, of=Deployment)
@follows_events
def deployment(request: HttpRequest, pk: int) -> HttpResponse:
    """A deployment's page: progress of its nodes, live; the endpoint; remedies for errors.

    `?page=` of the nodes.
    """
    row = get_object_or_404(Deployment.light(request).select_related("created_by"), pk=pk)
    now = timezone.now()
    base_url, *more_urls = endpoint_urls(row, now=now) or [""]
    drains = list(
        Drain.unscoped.filter(node__cluster=row.cluster_id)
        .select_related("node")
        .defer("node__hardware")
        if row.status in SERVING
        else ()
    )
    repair = losses.shown_repair(row, now=now) if row.status in SERVING else None
    away = [] if repair is None else repair.lost
    drained = [name for name in away if name in {drain.node.name for drain in drains}]
    page = page_of(request, placed_names(row.plan), size=NODES_PER_PAGE)
    context = {
        "deployment": row,
        "may_mix_versions": orders.may_mix_versions(row.stage_checkpoint),
        "can_stop": row.status in SERVING,
        "instances": instances_view(row, now=now) if row.is_live else None,
        "before": deploying.deployment_before(row) if row.status in SERVING else None,
        "change": change_of(row),
        "page": page,
        "nodes": node_rows(row, list(page.object_list), now=now),
        "losses": losses.losses_of(row, now=now),
        "drains": drains,
        "waiting": requests_waiting(row) if row.status in SERVING else None,
        "refusals": refusals_of(row, now=now),
        "coordinator_says": coordinator_says(row),
        "repair": repair,
        "outage": losses.outage_of(row, now=now),
        "lost": [name for name in away if name not in drained],
        "drained": drained,
        "base_url": base_url,
        "more_urls": more_urls,
        "curl": curl_command(row, base_url),
    }
    if by_htmx(request):
        return render(request, "deployment/_live.html", context)
    topics = [row.topic, f"cluster:{row.cluster_id}"]
    topics += [f"metrics:{row.cluster_id}"] if row.is_live else []
    context["topics"] = ",".join(topics)
    context["timeline"] = timeline_of(row, now=now)
    return render(request, "deployment/deployment.html", context)


def _button(
    of: type[Deployment | Repair], act: Callable[..., Deployment | None]
) -> Callable[..., HttpResponse]:
    """A view that does this to a row, then shows its deployment or the one that `act` returns."""

    @needs(change=OPERATOR, row=of)
    def view(request: HttpRequest, row: Deployment | Repair) -> HttpResponse:
        shown = row.deployment if isinstance(row, Repair) else row
        with refusals_shown(request):
            shown = act(row, user=request.user, now=timezone.now()) or shown
        return redirect("deployment", shown.pk)

    return view


deployment_stop = _button(Deployment, deploying.stop)
deployment_pause = _button(Deployment, deploying.pause)
deployment_resume = _button(Deployment, deploying.resume)
deployment_roll_back = _button(Deployment, deploying.roll_back)
repair_deploy = _button(Repair, repairing.accept)
repair_dismiss = _button(Repair, repairing.dismiss)


@needs(change=OPERATOR, of=Deployment)
def deployment_weights(request: HttpRequest, pk: int) -> HttpResponse:
    """`held=1`: route by the plan's weights even if links are slow; else follow links again."""
    row = get_object_or_404(Deployment.light(request), pk=pk, status__in=SERVING)
    held = request.POST.get("held") == "1"
    hold_weights(row, held=held, user=request.user, now=timezone.now())
    return redirect("network", row.cluster_id)


def _on_node(act: Callable[[HttpRequest, Node], object]) -> Callable[..., HttpResponse]:
    """A view that does this to a node, then shows the page on which the button was pressed."""

    @needs(change=OPERATOR, row=Cluster)
    def view(request: HttpRequest, cluster: Cluster, node_pk: int) -> HttpResponse:
        node = get_object_or_404(cluster.nodes, pk=node_pk)
        with refusals_shown(request):
            act(request, node)
        deployment = Deployment.serving(cluster.pk)
        if request.POST.get("from") == "deployment" and deployment is not None:
            return redirect("deployment", deployment.pk)
        return redirect("node", cluster.pk, node_pk)

    return view


def _take_in(request: HttpRequest, node: Node) -> None:
    """Pressed twice, nothing more happens."""
    for row in Drain.unscoped.filter(node=node).select_related("node"):
        draining.take_in(row, user=request.user, now=timezone.now())


def _measure(request: HttpRequest, node: Node) -> None:
    """Order a measurement of the node while it serves, for the model of the form."""
    order_profiling(node, _model(request), user=request.user, now=timezone.now())


def _cancel(_request: HttpRequest, node: Node) -> None:
    """Pressed twice, or too late, nothing more happens."""
    for row in Profiling.unscoped.filter(node=node, state__in=STANDING):
        cancel_profiling(row, now=timezone.now())


node_drain = _on_node(lambda r, node: draining.drain(node, user=r.user, now=timezone.now()))
node_take_in, node_measure, node_measure_cancel = map(_on_node, (_take_in, _measure, _cancel))


@needs(change=OPERATOR, row=Cluster)
def cluster_measure(request: HttpRequest, cluster: Cluster) -> HttpResponse:
    """Measure all nodes without a fresh measurement for the form's model; `again=1`: all nodes."""
    again = request.POST.get("again") == "1"
    with refusals_shown(request):
        measure_cluster(
            cluster, _model(request), user=request.user, now=timezone.now(), again=again
        )
    if request.POST.get("overview"):
        return redirect(f"{reverse('overview')}?cluster={cluster.pk}")
    return redirect(f"{reverse('cluster', args=[cluster.pk])}#measuring")


@needs(VIEWER, row=Cluster)
def node_log(request: HttpRequest, cluster: Cluster, node_pk: int) -> HttpResponse:
    """The lines alone, for a page that follows; `?level=` and `?lines=`."""
    node = get_object_or_404(cluster.nodes, pk=node_pk)
    return render(request, "deployment/_log_lines.html", {"log": log_view(node, request.GET)})


@needs(change=OPERATOR, row=Cluster)
def links_keep_measured(request: HttpRequest, cluster: Cluster) -> HttpResponse:
    """Store measured link rates for the next plan."""
    kept = keep_slow_rates(cluster, now=timezone.now())
    if kept:
        said = ngettext(
            "%(rates)s measured rate counts in the next plan; the history has what was there "
            "before.",
            "%(rates)s measured rates count in the next plan; the history has what was there "
            "before.",
            kept,
        )
        messages.success(request, said % {"rates": kept})
    else:
        messages.info(request, _("No link is measured to be slow now; nothing was changed."))
    return redirect("network", cluster.pk)


def _model(request: HttpRequest) -> LanguageModel:
    """The model of the form. Raises Conflict."""
    model = LanguageModel.objects.filter(pk=parsed_id(request.POST.get("model", "")) or 0).first()
    if model is None:
        raise Conflict(_("Choose the model to measure nodes for."))
    return model
