"""Clusters: list, new, import, the cluster's own page, export, join commands and their form."""

from functools import partial
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from helixweb.access.needs import DELETE_CLUSTER, OPERATOR, SITE_OPERATOR, VIEWER, needs
from helixweb.common.pages import by_htmx, follows_events, list_page
from helixweb.common.queries import query_id
from helixweb.inventory.as_code.importing import import_problem
from helixweb.inventory.columns import MAX_MACHINES, NAME_LENGTH
from helixweb.inventory.forms import ClusterForm, ImportForm
from helixweb.inventory.models import Cluster, Coordinator, JoinToken, LanguageModel
from helixweb.inventory.network import Network
from helixweb.inventory.node_list import cluster_counts, node_rows
from helixweb.inventory.services import demonstration, joining, problems, reachability
from helixweb.inventory.services.errors import InventoryError
from helixweb.inventory.validators import validate_name, validate_node_name
from helixweb.inventory.views.editing import ResourcePages, import_page, json_file
from planner import InvalidProblem
from planner.serialization import problem_from_text, problem_to_dict

# On the page of a cluster; all of them are in the list of nodes.
NODES_SHOWN = 50


class JoinForm(forms.Form):
    """Which command to make."""

    role = forms.ChoiceField(
        choices=[
            ("node", gettext_lazy("Node: runs layers")),
            ("coordinator", gettext_lazy("Coordinator: faces chat clients")),
        ],
        widget=forms.RadioSelect,
        initial=JoinToken.Role.NODE,
    )
    machines = forms.IntegerField(
        label=gettext_lazy("How many machines"),
        required=False,
        initial=1,
        min_value=1,
        max_value=MAX_MACHINES,
        help_text=gettext_lazy("The same command, run once on each within the hour."),
    )
    name = forms.CharField(
        required=False,
        max_length=NAME_LENGTH,
        validators=[validate_name],
        help_text=gettext_lazy("Blank: the name of the host, with a number if that is taken."),
    )
    region = forms.CharField(
        max_length=NAME_LENGTH,
        validators=[validate_name],
        help_text=gettext_lazy("A node that is declared already keeps its region."),
    )
    service = forms.BooleanField(
        label=gettext_lazy("Start at boot"),
        required=False,
        help_text=gettext_lazy("Nodes only: the agent becomes a systemd unit."),
    )

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        name = cleaned.get("name")
        machines = cleaned["machines"] = cleaned.get("machines") or 1
        if cleaned.get("role") == JoinToken.Role.NODE and name:
            try:
                validate_node_name(name)
            except forms.ValidationError as error:
                self.add_error("name", error)
        if name and machines > 1:
            self.add_error(
                "name",
                _("%(machines)s machines cannot all be called %(name)s; leave the name blank.")
                % {"machines": machines, "name": repr(name)},
            )
        if cleaned.get("role") == JoinToken.Role.COORDINATOR and machines > 1:
            self.add_error(
                "machines", _("Coordinators join one at a time, each by a name of its own; give 1.")
            )
        return cleaned


@needs(VIEWER)
def clusters(request: HttpRequest) -> HttpResponse:
    """All clusters."""
    found = list(Cluster.objects.within(request))
    counts, models = cluster_counts(found, now=timezone.now()), problems.models_by_cluster()
    rows = [
        {"cluster": row, "view": counts[row.pk], "models": models.get(row.pk, ())} for row in found
    ]
    has_demo = Cluster.objects.within(request).filter(name=demonstration.DEMO_NAME).exists()
    return render(request, "inventory/clusters.html", {"rows": rows, "has_demo": has_demo})


class ClusterPages(ResourcePages):
    """Clusters; a new one is empty, to be filled by joining."""

    name, at, what = "cluster", "clusters", gettext_lazy("cluster")
    model, form, related = Cluster, ClusterForm, ()
    needed = {"new": SITE_OPERATOR, "delete": DELETE_CLUSTER}
    submits = {"new": gettext_lazy("Create cluster")}
    intros = {
        "new": gettext_lazy("An empty cluster; its nodes come by joining."),
        "delete": gettext_lazy(
            "Its %(count)s nodes, links, profiles, plans and deployments go with it; "
            "agents that have joined stop their stages and exit."
        ),
    }

    def list_place(self, cluster: None) -> tuple[str, str]:
        return reverse("clusters"), _("Clusters")

    def row_place(self, row: Cluster) -> tuple[str, str]:
        return reverse("cluster", args=[row.pk]), row.name

    def after_new(self, request: HttpRequest, row: Cluster) -> str:
        return self.row_place(row)[0]

    def values_of(self, row: Cluster) -> dict[str, Any]:
        return {"count": row.nodes.count()}


class CoordinatorPages(ResourcePages):
    """Pages of coordinators. They are added by joining; users can only remove one."""

    name, at, what = "coordinator", "clusters/<int:pk>/coordinators", gettext_lazy("coordinator")
    model, pages = Coordinator, ("delete",)
    submits = {"delete": gettext_lazy("Remove coordinator")}
    intros = {
        "delete": gettext_lazy(
            "Its credential ends; chat clients are no longer answered once it is stopped."
        )
    }


@needs(SITE_OPERATOR, SITE_OPERATOR)
def cluster_import(request: HttpRequest) -> HttpResponse:
    """A problem file becomes a cluster."""

    def store(given: dict[str, Any]) -> tuple[str, str]:
        problem = problem_from_text(given["problem_text"], name_hint=given["name_hint"])
        row = import_problem(problem, cluster_name=given["name"])
        message = _("Imported %(row)s with %(count)s nodes.")
        return message % {"row": row, "count": row.nodes.count()}, reverse("cluster", args=[row.pk])

    return import_page(request, ImportForm, template="inventory/import.html", store=store)


@needs(VIEWER, row=Cluster)
@follows_events
def cluster(request: HttpRequest, row: Cluster) -> HttpResponse:
    """Nodes, network, profiles, and how to join; alive by server-sent events."""
    if by_htmx(request) and (token := query_id(request, "join_token")):
        return _join_progress(request, row, token)
    if by_htmx(request):
        return render(request, "inventory/_live_parts.html", _live_context(row))
    return render(request, "inventory/cluster.html", _context(row))


@needs(change=OPERATOR, row=Cluster)
@follows_events
def cluster_join(request: HttpRequest, row: Cluster) -> HttpResponse:
    """Make a join token and show the command that uses it, this once."""
    form = JoinForm(request.POST)
    context = _context(row) | {"join_form": form}
    if form.is_valid():
        asked = form.cleaned_data
        token = joining.create_join_token(
            row, asked["role"], request.user, machines=asked["machines"]
        )
        context["join_token"] = token
        initial = {name: asked[name] for name in ("role", "region", "service")}
        context["join_form"] = JoinForm(initial=initial)
        context["works_elsewhere"] = joining.command_works_elsewhere()
        command = partial(
            joining.join_command,
            asked["role"],
            token.secret,
            name=asked["name"],
            region=asked["region"],
            service=asked["service"],
        )
        context["join_command"] = command()
        if asked["role"] == JoinToken.Role.NODE:
            context["join_if_installed"] = command(installed=True)
    if by_htmx(request):  # which swaps in successes only
        return render(request, "inventory/_join.html", context)
    status = 200 if form.is_valid() else 422
    return render(request, "inventory/cluster.html", context, status=status)


def _join_progress(request: HttpRequest, row: Cluster, token_pk: int) -> HttpResponse:
    """Progress of a join command; a spent one is removed from the page."""
    token = get_object_or_404(row.join_tokens, pk=token_pk)
    is_spent = token.used_at is not None or token.expires_at <= timezone.now()
    context = {"join_token": token, "is_spent": is_spent}
    answer = render(request, "inventory/_join_progress.html", context)
    if is_spent:
        answer.headers["HX-Retarget"] = "#join-made"
        answer.headers["HX-Reswap"] = "outerHTML"
    return answer


@needs(VIEWER)
def join_tokens(request: HttpRequest) -> HttpResponse:
    """The newest first; secrets are shown once, where they are made."""
    tokens = (
        JoinToken.objects.within(request).select_related("cluster", "created_by").order_by("-pk")
    )
    return list_page(request, "inventory/join_tokens.html", tokens, now=timezone.now())


@needs(change=OPERATOR, of=JoinToken)
def join_token_revoke(request: HttpRequest, pk: int) -> HttpResponse:
    """Let a token expire at once, used or not."""
    if joining.revoke_join_token(pk, now=timezone.now()):
        messages.success(request, _("The token is revoked."))
    else:
        messages.info(request, _("The token had expired already."))
    return redirect("join-tokens")


@needs(change=SITE_OPERATOR)
def cluster_demo(request: HttpRequest) -> HttpResponse:
    """Load the demo cluster if it does not exist, and redirect to planning."""
    try:
        row = demonstration.demo_cluster()
    except InventoryError as error:
        messages.error(request, _("The demo cluster is not loaded: %(error)s") % {"error": error})
        return redirect("clusters")
    return redirect(f"{reverse('plan-run-new')}?cluster={row.pk}")


@needs(VIEWER, row=Cluster)
def cluster_export(request: HttpRequest, row: Cluster, model_pk: int) -> HttpResponse:
    """The problem file of the cluster for one model."""
    model = get_object_or_404(LanguageModel, pk=model_pk)
    try:
        problem = problems.build_problem(row, model)
    except InvalidProblem as error:
        messages.error(
            request, _("The problem file cannot be written: %(error)s.") % {"error": error}
        )
        return redirect("cluster", row.pk)
    return json_file(f"cluster-{row.pk}.json", problem_to_dict(problem))


def _live_context(row: Cluster) -> dict[str, Any]:
    now = timezone.now()
    return {
        "cluster": row,
        "view": cluster_counts([row], now=now)[row.pk],
        "nodes": node_rows(row.nodes.all()[:NODES_SHOWN], now=now),
        "coordinators": list(row.coordinators.all()),
        "reach": reachability.reach_matrix(reachability.parties(row.pk, now=now)),
        "network": Network(row),
    }


def _context(row: Cluster) -> dict[str, Any]:
    live = _live_context(row)
    return live | {
        "profiles": row.profiles.select_related("model"),
        "models": problems.models_of(row),
        "join_form": JoinForm(initial=_next_to_join(row, live["view"])),
    }


def _next_to_join(row: Cluster, view: dict[str, Any]) -> dict[str, Any]:
    """The first declared node that has not joined, else any machine."""
    declared = row.nodes.filter(uuid=None).first()
    if declared is not None:
        return {"name": declared.name, "region": declared.region}
    return {"region": view["regions"][0][0] if view["regions"] else row.coordinator_region}
