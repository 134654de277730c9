"""What a person does about one node: leave it free, take it in again."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils import timezone
from django.views.decorators.http import require_POST

from helixweb.common.refusals import Conflict
from helixweb.deployment.live_links import serving_deployment
from helixweb.deployment.models import Drain
from helixweb.deployment.services import draining
from helixweb.inventory.models import Node


@require_POST
def node_drain(request: HttpRequest, pk: int, node_pk: int) -> HttpResponse:
    """Have requests leave it, then its layers."""
    node = _node(pk, node_pk)
    try:
        draining.drain(node, user=request.user, now=timezone.now())
    except Conflict as error:
        messages.error(request, str(error))
    return _back(request, node)


@require_POST
def node_take_in(request: HttpRequest, pk: int, node_pk: int) -> HttpResponse:
    """Undo a drain; pressed twice, nothing more happens."""
    node = _node(pk, node_pk)
    row = Drain.objects.filter(node=node).select_related("node").first()
    if row is not None:
        draining.take_in(row, user=request.user, now=timezone.now())
    return _back(request, node)


def _node(pk: int, node_pk: int) -> Node:
    return get_object_or_404(Node.objects.select_related("cluster"), pk=node_pk, cluster_id=pk)


def _back(request: HttpRequest, node: Node) -> HttpResponse:
    """To the page on which the button was pressed."""
    deployment = serving_deployment(node.cluster_id)
    if request.POST.get("from") == "deployment" and deployment is not None:
        return redirect("deployment", deployment.pk)
    return redirect("node", node.cluster_id, node.pk)
