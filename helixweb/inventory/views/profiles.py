"""Profiles: how fast kinds of node run the layers of a model, and what room they leave."""

from typing import Any, ClassVar

import django_filters
from django.contrib import messages
from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from helixweb.access.needs import OPERATOR, VIEWER, needs
from helixweb.common.page_refusals import refusals_shown
from helixweb.common.pages import ListFilter, filtered
from helixweb.inventory.forms import (
    CLUSTER_FILTER,
    MODEL_FILTER,
    EstimateForm,
    ProfileForm,
    ProfileImportForm,
)
from helixweb.inventory.models import Cluster, Node, Origin, Profile
from helixweb.inventory.profile_view import profile_speed, profiles_memory, version_lines
from helixweb.inventory.services import profile_versions
from helixweb.inventory.views.editing import ResourcePages, import_page, json_file
from planner import InvalidProblem
from planner.document import parse_document


class ProfileFilter(ListFilter):
    """Filters of the list of profiles."""

    model = MODEL_FILTER()
    cluster = CLUSTER_FILTER()
    origin = django_filters.ChoiceFilter(
        label=gettext_lazy("Source"),
        empty_label=gettext_lazy("any"),
        choices=[(name, gettext_lazy(name)) for name in Origin.values],
    )


@needs(VIEWER)
def profiles(request: HttpRequest) -> HttpResponse:
    """Filtered by the address; the speeds of its page are drawn."""
    found = Profile.objects.within(request).select_related("cluster", "model")
    found = found.order_by("model__name", "cluster__name", "name", "pk")
    shown = filtered(request, found, ProfileFilter)
    rows = list(shown["page"])
    context = {**shown, "profiles": rows, "speed": profile_speed(rows)}
    return render(request, "inventory/profiles.html", context)


@needs(VIEWER, row=Profile)
def profile(request: HttpRequest, row: Profile) -> HttpResponse:
    """A profile's page: its curve, its memory, and the nodes that use it."""
    nodes = Node.unscoped.filter(cluster=row.cluster_id, profile_name=row.name)
    context = {
        "profile": row,
        "speed": profile_speed([row]),
        "memory": profiles_memory([row]),
        "nodes": nodes.aggregate(count=Count("pk"))["count"],
        "versions": version_lines(row),
    }
    return render(request, "inventory/profile.html", context)


@needs(VIEWER, row=Profile)
def profile_export(request: HttpRequest, row: Profile) -> HttpResponse:
    """The profile as a file, with what it was made from."""
    return json_file(f"profile-{row.pk}.json", profile_versions.export_profile(row))


@needs(OPERATOR, OPERATOR)
def profile_import(request: HttpRequest) -> HttpResponse:
    """A profile file becomes a profile, or the next version of one."""

    def store(given: dict[str, Any]) -> tuple[str, str]:
        hint = given["name_hint"]
        document = parse_document(given["problem_text"], name_hint=hint)
        try:
            version = profile_versions.import_profile(
                given["cluster"], document, name=given["name"]
            )
        except InvalidProblem as error:
            raise InvalidProblem(f"{hint}: {error}") from None
        message = _("Imported %(version)s.") % {"version": version}
        return message, reverse("profile", args=[version.profile_id])

    template = "inventory/profile_import.html"
    return import_page(request, ProfileImportForm, template=template, store=store)


@needs(change=OPERATOR, row=Profile)
def profile_version_use(request: HttpRequest, row: Profile, version_pk: int) -> HttpResponse:
    """Have plans use it from now on."""
    version = get_object_or_404(row.versions, pk=version_pk)
    with refusals_shown(request):
        profile_versions.use_version(version)
        messages.success(
            request, _("Plans computed from now on use %(version)s.") % {"version": version}
        )
    return redirect("profile", row.pk)


class ProfilePages(ResourcePages):
    """Speed and KV room of kinds of node."""

    name, at, what = "profile", "clusters/<int:pk>/profiles", gettext_lazy("profile")
    model, related = Profile, ("cluster", "model")
    form: ClassVar[Any] = ProfileForm
    pages = ("new", "delete")
    submits = {"new": gettext_lazy("Add profile")}
    intros = {
        "new": gettext_lazy(
            "What one kind of node does with 1, 2, 3 … layers of a model. To measure "
            "it, run: python -m runtime profile."
        ),
        "delete": gettext_lazy("Nodes that name it cannot be planned with for %(model)s."),
    }

    def list_place(self, cluster: Cluster) -> tuple[str, str]:
        return f"{reverse('cluster', args=[cluster.pk])}#profiles", cluster.name

    def values_of(self, row: Profile) -> dict[str, Any]:
        return {"model": row.model}


class EstimatePages(ProfilePages):
    """Profiles from the data sheet of a GPU that was never measured."""

    form: ClassVar[Any] = EstimateForm
    submits = {"new": gettext_lazy("Estimate profile")}
    intros = {
        "new": gettext_lazy(
            "From a GPU's data sheet, for one that nobody has measured; plans say where they stand "
            "on it. Kinds that were measured were off by up to 60 percent; measure the node once "
            "it has joined."
        )
    }

    def create(self, request: HttpRequest, **values: Any) -> Profile:
        cluster, model, gpu = values["cluster"], values["model"], values["gpu"]
        return profile_versions.estimate_profile(
            cluster, model, gpu=gpu, name=values["name"] or gpu
        )

    def after_new(self, request: HttpRequest, row: Profile) -> str:
        return reverse("profile", args=[row.pk])
