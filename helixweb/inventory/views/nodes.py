"""Nodes: declare, look at, change, delete."""

from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext_lazy
from django.views.decorators.cache import never_cache

from helixweb.access.log_readers import LogReader
from helixweb.access.needs import VIEWER, needs
from helixweb.common import events
from helixweb.common.pages import page_of
from helixweb.inventory.forms import NodeForm
from helixweb.inventory.models import Change, Cluster, Node
from helixweb.inventory.node_list import node_rows
from helixweb.inventory.presentation import cluster_network
from helixweb.inventory.views.changes import change_lines
from helixweb.inventory.views.editing import ResourcePages, by_htmx

PEERS_PER_PAGE = 30
CHANGES_SHOWN = 10


def _node(request: HttpRequest, pk: int, node_pk: int) -> Node:
    return get_object_or_404(
        Node.objects.within(request).select_related("cluster"), pk=node_pk, cluster_id=pk
    )


@needs(VIEWER, of=Cluster)
@never_cache
def node(request: HttpRequest, pk: int, node_pk: int) -> HttpResponse:
    """Hardware, layers, memory, profiles, and the links that count for it; `?page=` of links."""
    last_event_id = events.latest_id()
    row = _node(request, pk, node_pk)
    (shown,) = node_rows([row], now=timezone.now())
    if by_htmx(request):
        context = {"cluster": row.cluster, "row": shown}
        return render(request, "inventory/_node_live.html", context)
    context = {
        "cluster": row.cluster,
        "row": shown,
        "profiles": row.cluster.profiles.filter(name=row.profile_name).select_related("model"),
        "last_event_id": last_event_id,
        "changes": change_lines(_changes_of(row)[:CHANGES_SHOWN], LogReader.of(request)),
        **_peers(request, row),
    }
    return render(request, "inventory/node.html", context)


def _changes_of(row: Node) -> QuerySet[Change]:
    return Change.unscoped.filter(kind="node", row_id=row.pk)


def _peers(request: HttpRequest, row: Node) -> dict[str, Any]:
    """The other ends of its links, a page of them, with what counts there and back."""
    network = cluster_network(row.cluster)
    others = [name for name in network.names if name != row.name]
    page = page_of(request, others, size=PEERS_PER_PAGE)
    peers = [
        {"name": name, "out": network.link(row.name, name), "in": network.link(name, row.name)}
        for name in page
    ]
    return {"page": page, "peers": peers}


class NodePages(ResourcePages):
    """Nodes, which can be declared to plan with them before they join."""

    name, at, what = "node", "clusters/<int:pk>/nodes", gettext_lazy("node")
    model, form = Node, NodeForm
    submits = {"new": gettext_lazy("Add node")}
    intros = {
        "new": gettext_lazy(
            "It can be planned with at once; the machine may join under this name later."
        ),
        "delete": gettext_lazy(
            "Its links go with it and its credential ends: an agent that has joined "
            "stops its stage and exits. Plans made before keep naming it."
        ),
    }

    def row_place(self, row: Node) -> tuple[str, str]:
        return reverse("node", args=[row.cluster_id, row.pk]), row.name

    def initial_of_new(self, request: HttpRequest, cluster: Cluster) -> dict[str, Any]:
        return {"region": cluster.coordinator_region}
