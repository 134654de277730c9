"""Profiles: how fast kinds of node run the layers of a model, what room they leave, and their
versions."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeGuard

import django_filters
from django.contrib import messages
from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from helixweb.access.needs import OPERATOR, VIEWER, needs
from helixweb.charts.bars import memory_bars
from helixweb.charts.chart import Chart
from helixweb.charts.curves import SpeedCurve, speed_curves
from helixweb.common.pages import ListFilter, filtered, refusals_shown
from helixweb.inventory.forms import (
    CLUSTER_FILTER,
    MODEL_FILTER,
    EstimateForm,
    ProfileForm,
    ProfileImportForm,
)
from helixweb.inventory.models import Cluster, Node, Origin, Profile, ProfileVersion
from helixweb.inventory.services import profile_versions
from helixweb.inventory.services.problems import compute_profile
from helixweb.inventory.views.editing import ResourcePages, import_page, json_file
from planner import InvalidProblem
from planner.document import parse_document
from planner.serialization import profile_to_dict

# Of a profile; measuring is done by hand, so that there are few.
SHOWN = 20
_PHASES = ("prompt", "decode")


def profiles_memory(profiles: Sequence[Profile]) -> Chart:
    """Bars of each profile's memory with the most layers it can hold."""
    return memory_bars(
        {
            name: {
                "weights": profile.weights_bytes,
                "KV cache room": max(0.0, profile.kv_room_bytes or 0.0),
                "left": profile.left_bytes,
            }
            for name, profile in zip(_names(profiles), profiles, strict=True)
        }
    )


def profile_speed(profiles: Sequence[Profile]) -> Chart:
    """Tokens/s against layers held, a line each."""
    return speed_curves(
        [
            SpeedCurve(
                name=name,
                tokens_per_s=tuple(speed for _, _, speed, _ in profile.steps),
                is_measured=profile.origin == "measured",
            )
            for name, profile in zip(_names(profiles), profiles, strict=True)
        ]
    )


def _names(profiles: Sequence[Profile]) -> list[str]:
    """Names of profiles in a chart, with model and cluster where they are needed to be unique.

    Bars and lines of one name would be drawn as one.
    """
    several_models = len({profile.model_id for profile in profiles}) > 1
    names = [profile.label if several_models else profile.name for profile in profiles]
    shown = Counter(names)
    return [
        f"{name}, {profile.cluster.name}" if shown[name] > 1 else name
        for name, profile in zip(names, profiles, strict=True)
    ]


def version_lines(profile: Profile) -> list[dict[str, Any]]:
    """The newest first; of one that is `used` plans computed now take their numbers."""
    used = profile_to_dict(compute_profile(profile))
    rows = list(profile.versions.select_related("profile").order_by("-number")[:SHOWN])
    same = next((row.pk for row in rows if row.document == used), None)
    return [_line(row, used, is_used=row.pk == same) for row in rows]


def _line(row: ProfileVersion, used: Mapping[str, Any], *, is_used: bool) -> dict[str, Any]:
    """Evidence of an imported file is not checked: it holds what the file had."""
    evidence = row.evidence or {}
    error = evidence.get("interpolation_error")
    return {
        "row": row,
        "used": is_used,
        "slower_text": "" if is_used else _slower_text(row.document, used),
        "seconds": evidence.get("seconds"),
        "waited_s": evidence.get("waited_s", 0.0),
        "nic_bytes_per_s": evidence.get("nic_bytes_per_s"),
        "fits": [
            (phase, f"{fit['median_error']:.1%}, {fit['worst_error']:.1%}")
            for phase in _PHASES
            if _has_numbers(fit := evidence.get(f"{phase}_fit"), "median_error", "worst_error")
        ],
        "interpolation_error": error if isinstance(error, int | float) else None,
        "points": [
            {
                **point,
                "least_ms": 1e3 * point["seconds"],
                "spread_text": f"{point['median_s'] / point['seconds'] - 1:.0%}",
            }
            for point in evidence.get("points", ())
            if _has_numbers(point, "layers", "batch", "tokens", "seconds", "median_s", "runs")
            and point.get("phase") in _PHASES
            and point["seconds"] > 0
        ],
        "factors": [
            (phase, factor["factor"], factor["error"])
            for phase in _PHASES
            if _has_numbers(factor := evidence.get(phase), "factor", "error")
        ],
    }


def _has_numbers(item: object, *names: str) -> TypeGuard[dict[str, Any]]:
    return isinstance(item, dict) and all(isinstance(item.get(name), int | float) for name in names)


def _slower_text(document: Mapping[str, Any], used: Mapping[str, Any]) -> str:
    """Its speed relative to the used profile's, with as many layers as both can hold; empty:
    unknown."""
    layers = min(len(document["tokens_per_s"]), len(used["tokens_per_s"]))
    if layers == 0 or not used["tokens_per_s"][layers - 1]:
        return ""
    slower = 1 - document["tokens_per_s"][layers - 1] / used["tokens_per_s"][layers - 1]
    text = _("%(share)s slower") if slower >= 0 else _("%(share)s faster")
    return text % {"share": f"{abs(slower):.0%}"}


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
            "From a GPU's data sheet, for one that was not measured; plans say where they depend "
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
