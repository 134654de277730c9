"""What users do on pages of nodes and networks: drain, measure, read the log, keep rates."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.cache import never_cache

from helixweb.access.needs import OPERATOR, VIEWER, needs
from helixweb.common.page_refusals import refusals_shown
from helixweb.common.queries import parsed_id
from helixweb.common.refusals import Conflict
from helixweb.deployment.links import keep_slow_rates
from helixweb.deployment.models import STANDING, Deployment, Drain, Profiling
from helixweb.deployment.node_log import log_view
from helixweb.deployment.profiling import cancel_profiling, measure_cluster, order_profiling
from helixweb.deployment.services import draining
from helixweb.inventory.models import Cluster, LanguageModel, Node


@needs(change=OPERATOR, of=Cluster)
def node_drain(request: HttpRequest, pk: int, node_pk: int) -> HttpResponse:
    """Have requests leave it, then its layers."""
    node = _node(request, pk, node_pk)
    with refusals_shown(request):
        draining.drain(node, user=request.user, now=timezone.now())
    return _back(request, node)


@needs(change=OPERATOR, of=Cluster)
def node_take_in(request: HttpRequest, pk: int, node_pk: int) -> HttpResponse:
    """Undo a drain; pressed twice, nothing more happens."""
    node = _node(request, pk, node_pk)
    for row in Drain.unscoped.filter(node=node).select_related("node"):
        draining.take_in(row, user=request.user, now=timezone.now())
    return _back(request, node)


@needs(change=OPERATOR, of=Cluster)
def node_measure(request: HttpRequest, pk: int, node_pk: int) -> HttpResponse:
    """Beside what it serves, for the model that the form names."""
    node = _node(request, pk, node_pk)
    with refusals_shown(request):
        order_profiling(node, _model(request), user=request.user, now=timezone.now())
    return redirect("node", pk, node_pk)


@needs(change=OPERATOR, of=Cluster)
def node_measure_cancel(request: HttpRequest, pk: int, node_pk: int) -> HttpResponse:
    """Pressed twice, or too late, nothing more happens."""
    for row in Profiling.unscoped.filter(node=_node(request, pk, node_pk), state__in=STANDING):
        with refusals_shown(request):
            cancel_profiling(row, now=timezone.now())
    return redirect("node", pk, node_pk)


@needs(change=OPERATOR, of=Cluster)
def cluster_measure(request: HttpRequest, pk: int) -> HttpResponse:
    """All nodes that lack a fresh measurement for the model that the form names; `again=1`: all."""
    cluster = get_object_or_404(Cluster.objects.within(request), pk=pk)
    again = request.POST.get("again") == "1"
    with refusals_shown(request):
        measure_cluster(
            cluster, _model(request), user=request.user, now=timezone.now(), again=again
        )
    if request.POST.get("overview"):
        return redirect(f"{reverse('overview')}?cluster={pk}")
    return redirect(f"{reverse('cluster', args=[pk])}#measuring")


@needs(VIEWER, of=Cluster)
@never_cache
def node_log(request: HttpRequest, pk: int, node_pk: int) -> HttpResponse:
    """The lines alone, for a page that follows; `?level=` and `?lines=`."""
    node = get_object_or_404(Node.objects.within(request), pk=node_pk, cluster_id=pk)
    return render(request, "deployment/_log_lines.html", {"log": log_view(node, request.GET)})


@needs(change=OPERATOR, of=Cluster)
def links_keep_measured(request: HttpRequest, pk: int) -> HttpResponse:
    """For the next plan."""
    cluster = get_object_or_404(Cluster.objects.within(request), pk=pk)
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
    return redirect("network", pk)


def _model(request: HttpRequest) -> LanguageModel:
    """That of the form. Raises Conflict."""
    model = LanguageModel.objects.filter(pk=parsed_id(request.POST.get("model", "")) or 0).first()
    if model is None:
        raise Conflict(_("Choose the model to measure nodes for."))
    return model


def _node(request: HttpRequest, pk: int, node_pk: int) -> Node:
    rows = Node.objects.within(request).select_related("cluster")
    return get_object_or_404(rows, pk=node_pk, cluster_id=pk)


def _back(request: HttpRequest, node: Node) -> HttpResponse:
    """To the page on which the button was pressed."""
    deployment = Deployment.serving(node.cluster_id)
    if request.POST.get("from") == "deployment" and deployment is not None:
        return redirect("deployment", deployment.pk)
    return redirect("node", node.cluster_id, node.pk)
