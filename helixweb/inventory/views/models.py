"""Language models and the profiles that say how fast nodes run them."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from helixweb.inventory import services
from helixweb.inventory.forms import LanguageModelForm, ProfileForm
from helixweb.inventory.models import Cluster, LanguageModel, Profile
from helixweb.inventory.presentation import fits_of
from helixweb.inventory.views.editing import Page, delete_page, edit_page


@require_GET
def models(request: HttpRequest) -> HttpResponse:
    """All models and where they fit."""
    rows = [{"model": row, "fits": fits_of(row)} for row in LanguageModel.objects.all()]
    return render(request, "inventory/models.html", {"rows": rows})


@require_GET
def model(request: HttpRequest, pk: int) -> HttpResponse:
    """The arithmetic of its bytes, its profiles, and where it fits."""
    row = get_object_or_404(LanguageModel, pk=pk)
    context = {
        "model": row,
        "fits": fits_of(row),
        "profiles": [
            {"profile": profile, "weights_bytes": profile.max_layers * row.bytes_per_layer}
            for profile in row.profiles.select_related("cluster").order_by("cluster__name", "name")
        ],
    }
    return render(request, "inventory/model.html", context)


@require_http_methods(["GET", "POST"])
def model_new(request: HttpRequest) -> HttpResponse:
    """A model by its numbers."""
    form = LanguageModelForm(request.POST or None)
    page = Page(
        title="New model",
        submit="Create model",
        back_url=reverse("models"),
        back_title="Models",
        intro="A chain of equal layers, as the planner sees it.",
    )

    def save() -> str:
        row = services.create(LanguageModel, **form.cleaned_data)
        return reverse("model", args=[row.pk])

    return edit_page(request, form, page=page, save=save)


@require_http_methods(["GET", "POST"])
def model_edit(request: HttpRequest, pk: int) -> HttpResponse:
    """Plans made before keep the numbers they were made with."""
    row = get_object_or_404(LanguageModel, pk=pk)
    form = LanguageModelForm(request.POST or None, instance=row)
    back_url = reverse("model", args=[pk])
    page = Page(
        title=f"Edit model {row}",
        submit="Save",
        back_url=back_url,
        back_title=row.name,
        intro="Plans made before keep the numbers they were made with.",
    )

    def save() -> str:
        services.update(row, **form.cleaned_data)
        return back_url

    return edit_page(request, form, page=page, save=save)


@require_http_methods(["GET", "POST"])
def model_delete(request: HttpRequest, pk: int) -> HttpResponse:
    """Refused while a deployment uses it."""
    row = get_object_or_404(LanguageModel, pk=pk)
    page = Page(
        title=f"Delete model {row}?",
        submit="Delete model",
        back_url=reverse("models"),
        back_title="Models",
        intro="Its profiles and plans go with it; files on the nodes stay.",
    )
    return delete_page(request, row, page=page)


@require_http_methods(["GET", "POST"])
def profile_new(request: HttpRequest, pk: int) -> HttpResponse:
    """Speed and KV room of one kind of node, by hand."""
    cluster = get_object_or_404(Cluster, pk=pk)
    form = ProfileForm(request.POST or None)
    back_url = reverse("cluster", args=[pk])
    page = Page(
        title="Add a profile",
        submit="Add profile",
        back_url=back_url,
        back_title=cluster.name,
        intro="What one kind of node does with 1, 2, 3 … layers of a model. "
        "To measure it, run: python -m runtime profile.",
    )

    def save() -> str:
        services.create(Profile, cluster=cluster, **form.row_fields())
        return back_url

    return edit_page(request, form, page=page, save=save)


@require_http_methods(["GET", "POST"])
def profile_delete(request: HttpRequest, pk: int, profile_pk: int) -> HttpResponse:
    """Nodes that name it cannot be planned with until they have another."""
    row = get_object_or_404(
        Profile.objects.select_related("cluster", "model"), pk=profile_pk, cluster_id=pk
    )
    page = Page(
        title=f"Delete profile {row}?",
        submit="Delete profile",
        back_url=reverse("cluster", args=[pk]),
        back_title=row.cluster.name,
        intro=f"Nodes that name it cannot be planned with for {row.model}.",
    )
    return delete_page(request, row, page=page)
