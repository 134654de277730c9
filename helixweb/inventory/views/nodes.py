"""Nodes: the list, what is done to many at once, one node's page, and the forms of one."""

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.db.models import QuerySet
from django.http import (
    HttpRequest,
    HttpResponse,
    HttpResponseRedirect,
    StreamingHttpResponse,
)
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from helixweb.access.log_readers import LogReader
from helixweb.access.needs import OPERATOR, VIEWER, needs
from helixweb.common.pages import by_htmx, csv_file, follows_events, page_of
from helixweb.common.queries import parsed_id
from helixweb.inventory.forms import NodeForm
from helixweb.inventory.models import Change, Cluster, Node, NodeState
from helixweb.inventory.network import Network
from helixweb.inventory.node_list import (
    CSV_COLUMNS,
    asked_of,
    choices,
    csv_lines,
    node_rows,
    nodes_matching,
    state_counts,
)
from helixweb.inventory.services import bulk
from helixweb.inventory.stale_profiles import measured_elsewhere
from helixweb.inventory.views.changes import change_lines
from helixweb.inventory.views.editing import ResourcePages
from planner import InvalidProblem

PEERS_PER_PAGE = 30
CHANGES_SHOWN = 10
# What can be done to many nodes at once, by the name of its button: from the word typed beside it.
CHANGES: dict[str, Callable[[str], dict[str, Any]]] = {
    "region": lambda word: {"region": word},
    "profile": lambda word: {"profile_name": word},
    "profile-anyway": lambda word: {"profile_name": word},
    "tag": lambda word: {"add_tags": word.split() or (word,)},
    "untag": lambda word: {"remove_tags": word.split() or (word,)},
}


@needs(VIEWER)
@follows_events
def nodes(request: HttpRequest) -> HttpResponse:
    """Filters, order and page are in the address; htmx gets only the table and the counts."""
    now, asked = timezone.now(), asked_of(request.GET)
    found = nodes_matching(request, asked, now=now)
    page = page_of(request, found.prefetch_related("tags"))
    rows = node_rows(page, now=now)
    context = {
        "asked": asked,
        "is_narrow": asked.keys() > {"sort"},
        "page": page,
        "rows": rows,
        "nodes": [row.node for row in rows],
        "counts": state_counts(found, now=now),
        "topics": ",".join(
            f"cluster:{pk},metrics:{pk}" for pk in sorted({row.node.cluster_id for row in rows})
        ),
    }
    if by_htmx(request):
        return render(request, "inventory/_nodes_table.html", context)
    context |= {
        "choices": choices(request),
        "states": NodeState.values,
    }
    return render(request, "inventory/nodes.html", context)


@needs(VIEWER)
def nodes_csv(request: HttpRequest) -> StreamingHttpResponse:
    """The nodes that the filters leave, all pages of them."""
    now = timezone.now()
    found = nodes_matching(request, asked_of(request.GET), now=now).prefetch_related("tags")
    return csv_file("nodes.csv", CSV_COLUMNS, csv_lines(found, now=now))


@needs(change=OPERATOR)
def nodes_bulk(request: HttpRequest) -> HttpResponse:
    """`action` on the nodes chosen, or on all that the filters leave; deleting asks once more."""
    asked = asked_of(request.POST)
    chosen = _chosen(request, asked)
    action, word = request.POST.get("action", ""), request.POST.get("word", "").strip()
    count = chosen.count()
    if not count:
        messages.error(request, _("No node is chosen; tick some first."))
        return _back(asked)
    if action == "delete":
        return _delete(request, chosen, asked, count=count)
    if action not in CHANGES:
        messages.error(
            request,
            _("There is no action %(action)s; choose one beside the list.")
            % {"action": repr(action)},
        )
        return _back(asked)
    if action == "profile" and (why := _why_not_assigned(chosen, word)):
        messages.error(request, why)
        return _back(asked)
    try:
        ids = chosen.values_list("pk", flat=True)
        changed = bulk.change_nodes(Node.objects.within(request), ids, **CHANGES[action](word))
    except InvalidProblem as error:
        messages.error(request, _("No node is changed: %(error)s") % {"error": error})
    else:
        messages.success(
            request,
            _("%(changed)s of %(count)s chosen nodes changed.")
            % {"changed": changed, "count": count},
        )
    return _back(asked)


def _why_not_assigned(chosen: QuerySet[Node], profile_name: str) -> str:
    """Empty unless one of the nodes has other hardware than the profile was measured on."""
    found = measured_elsewhere(chosen, profile_name)
    if found is None:
        return ""
    node, why = found
    return _("No node is changed. %(node)s: %(why)s To assign it, choose %(action)s.") % {
        "node": node.name,
        "why": why,
        "action": _("Set profile measured elsewhere"),
    }


def _delete(
    request: HttpRequest, chosen: QuerySet[Node], asked: Mapping[str, Any], *, count: int
) -> HttpResponse:
    if request.POST.get("sure") == "yes":
        bulk.delete_nodes(Node.objects.within(request), chosen.values_list("pk", flat=True))
        messages.success(
            request,
            ngettext("%(count)s node deleted.", "%(count)s nodes deleted.", count)
            % {"count": count},
        )
        return _back(asked)
    context: dict[str, Any] = {
        "count": count,
        "names": list(chosen.values_list("name", flat=True)[:20]),
        "ids": request.POST.getlist("node"),
        "all": request.POST.get("all", ""),
        "asked": asked,
        "back_url": _address(asked),
    }
    return render(request, "inventory/nodes_delete.html", context, status=422)


def _chosen(request: HttpRequest, asked: Mapping[str, Any]) -> QuerySet[Node]:
    matching = nodes_matching(request, asked, now=timezone.now())
    if request.POST.get("all") == "yes":
        return matching
    ids = [parsed_id(text) for text in request.POST.getlist("node")]
    return matching.filter(pk__in=[pk for pk in ids if pk is not None])


def _address(asked: Mapping[str, Any]) -> str:
    query = urlencode([item for item in asked.items() if item != ("sort", "name")])
    return f"{reverse('nodes')}?{query}" if query else reverse("nodes")


def _back(asked: Mapping[str, Any]) -> HttpResponseRedirect:
    return redirect(_address(asked))


@needs(VIEWER, row=Cluster)
@follows_events
def node(request: HttpRequest, cluster: Cluster, node_pk: int) -> HttpResponse:
    """Hardware, layers, memory, profiles, and the links that count for it; `?page=` of links."""
    row = get_object_or_404(cluster.nodes, pk=node_pk)
    (shown,) = node_rows([row], now=timezone.now())
    if by_htmx(request):
        context = {"cluster": cluster, "row": shown}
        return render(request, "inventory/_node_live.html", context)
    context = {
        "cluster": cluster,
        "row": shown,
        "profiles": cluster.profiles.filter(name=row.profile_name).select_related("model"),
        "changes": change_lines(_changes_of(row)[:CHANGES_SHOWN], LogReader.of(request)),
        **_peers(request, row),
    }
    return render(request, "inventory/node.html", context)


def _changes_of(row: Node) -> QuerySet[Change]:
    return Change.unscoped.filter(kind="node", row_id=row.pk)


def _peers(request: HttpRequest, row: Node) -> dict[str, Any]:
    """The other ends of its links, a page of them, with what counts there and back."""
    network = Network(row.cluster)
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
