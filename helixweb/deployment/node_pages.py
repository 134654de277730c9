"""What users do on pages of nodes and networks: drain, measure, read the log, keep rates."""

from collections.abc import Callable

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


def _on_node(act: Callable[[HttpRequest, Node], object]) -> Callable[..., HttpResponse]:
    """A view that does this to a node, then shows the page on which the button was pressed."""

    @needs(change=OPERATOR, of=Cluster)
    def view(request: HttpRequest, pk: int, node_pk: int) -> HttpResponse:
        rows = Node.objects.within(request).select_related("cluster")
        node = get_object_or_404(rows, pk=node_pk, cluster_id=pk)
        with refusals_shown(request):
            act(request, node)
        deployment = Deployment.serving(pk)
        if request.POST.get("from") == "deployment" and deployment is not None:
            return redirect("deployment", deployment.pk)
        return redirect("node", pk, node_pk)

    return view


def _take_in(request: HttpRequest, node: Node) -> None:
    """Pressed twice, nothing more happens."""
    for row in Drain.unscoped.filter(node=node).select_related("node"):
        draining.take_in(row, user=request.user, now=timezone.now())


def _measure(request: HttpRequest, node: Node) -> None:
    """Beside what it serves, for the model that the form names."""
    order_profiling(node, _model(request), user=request.user, now=timezone.now())


def _cancel(_request: HttpRequest, node: Node) -> None:
    """Pressed twice, or too late, nothing more happens."""
    for row in Profiling.unscoped.filter(node=node, state__in=STANDING):
        cancel_profiling(row, now=timezone.now())


node_drain = _on_node(lambda r, node: draining.drain(node, user=r.user, now=timezone.now()))
node_take_in, node_measure, node_measure_cancel = map(_on_node, (_take_in, _measure, _cancel))


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
