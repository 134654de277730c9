"""What a person does about the profile of one node: have it measured, or not."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from helixweb.common.problems import Conflict
from helixweb.common.queries import parsed_id
from helixweb.deployment.models import STANDING, Profiling
from helixweb.deployment.profiling import cancel_profiling, order_profiling
from helixweb.inventory.models import LanguageModel, Node


@require_POST
def node_measure(request: HttpRequest, pk: int, node_pk: int) -> HttpResponse:
    """Beside what it serves, for the model that the form names."""
    node = _node(pk, node_pk)
    model = LanguageModel.objects.filter(pk=parsed_id(request.POST.get("model", "")) or 0).first()
    try:
        if model is None:
            raise Conflict(_("Choose the model to measure the node for."))
        order_profiling(node, model, user=request.user, now=timezone.now())
    except Conflict as error:
        messages.error(request, str(error.detail))
    return redirect("node", pk, node_pk)


@require_POST
def node_measure_cancel(request: HttpRequest, pk: int, node_pk: int) -> HttpResponse:
    """Pressed twice, or too late, nothing more happens."""
    row = Profiling.objects.filter(node=_node(pk, node_pk), state__in=STANDING).first()
    if row is not None:
        cancel_profiling(row, now=timezone.now())
    return redirect("node", pk, node_pk)


def _node(pk: int, node_pk: int) -> Node:
    return get_object_or_404(Node.objects.select_related("cluster"), pk=node_pk, cluster_id=pk)
