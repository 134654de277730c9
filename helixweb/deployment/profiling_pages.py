"""What a person does about the profiles of nodes: have them measured, or not."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from helixweb.common.queries import parsed_id
from helixweb.common.refusals import Conflict
from helixweb.deployment.models import STANDING, Profiling
from helixweb.deployment.profiling import cancel_profiling, measure_cluster, order_profiling
from helixweb.inventory.models import Cluster, LanguageModel, Node


@require_POST
def cluster_measure(request: HttpRequest, pk: int) -> HttpResponse:
    """All nodes that lack a fresh measurement for the model that the form names; `again=1`: all."""
    cluster = get_object_or_404(Cluster, pk=pk)
    again = request.POST.get("again") == "1"
    try:
        measure_cluster(
            cluster, _model(request), user=request.user, now=timezone.now(), again=again
        )
    except Conflict as error:
        messages.error(request, str(error))
    if request.POST.get("overview"):
        return redirect(f"{reverse('overview')}?cluster={pk}")
    return redirect(f"{reverse('cluster', args=[pk])}#measuring")


@require_POST
def node_measure(request: HttpRequest, pk: int, node_pk: int) -> HttpResponse:
    """Beside what it serves, for the model that the form names."""
    node = _node(pk, node_pk)
    try:
        order_profiling(node, _model(request), user=request.user, now=timezone.now())
    except Conflict as error:
        messages.error(request, str(error))
    return redirect("node", pk, node_pk)


@require_POST
def node_measure_cancel(request: HttpRequest, pk: int, node_pk: int) -> HttpResponse:
    """Pressed twice, or too late, nothing more happens."""
    row = Profiling.objects.filter(node=_node(pk, node_pk), state__in=STANDING).first()
    if row is not None:
        cancel_profiling(row, now=timezone.now())
    return redirect("node", pk, node_pk)


def _model(request: HttpRequest) -> LanguageModel:
    """That of the form. Raises Conflict."""
    model = LanguageModel.objects.filter(pk=parsed_id(request.POST.get("model", "")) or 0).first()
    if model is None:
        raise Conflict(_("Choose the model to measure nodes for."))
    return model


def _node(pk: int, node_pk: int) -> Node:
    return get_object_or_404(Node.objects.select_related("cluster"), pk=node_pk, cluster_id=pk)
