"""Language models: their bytes, and where they fit."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from helixweb.access.needs import SITE_OPERATOR, VIEWER, needs
from helixweb.inventory.engines import engine_groups
from helixweb.inventory.fits import fits_of_facts, fits_of_models
from helixweb.inventory.model_form import LanguageModelForm
from helixweb.inventory.models import LanguageModel, Node, Profile
from helixweb.inventory.profile_view import profiles_memory
from helixweb.inventory.services import checkpoint_reading
from helixweb.inventory.views.editing import ResourcePages

MAX_PROFILES = 30


@needs(VIEWER)
def models(request: HttpRequest) -> HttpResponse:
    """All models and where they fit."""
    rows = list(LanguageModel.objects.all())
    fits = fits_of_models(request, rows)
    context = {"rows": [{"model": row, "fits": fits[row.pk]} for row in rows]}
    return render(request, "inventory/models.html", context)


@needs(VIEWER)
def model(request: HttpRequest, pk: int) -> HttpResponse:
    """The arithmetic of its bytes, its profiles, and where it fits."""
    row = get_object_or_404(LanguageModel, pk=pk)
    profiles = Profile.objects.within(request).filter(model=row).select_related("cluster", "model")
    profiles = profiles.order_by("cluster__name", "name")
    shown = list(profiles[:MAX_PROFILES])
    context = {
        "model": row,
        "fits": fits_of_models(request, [row])[row.pk],
        "profiles": shown,
        "memory": profiles_memory(shown),
        "num_profiles": profiles.count(),
        "engines": engine_groups(
            row, Node.objects.within(request).select_related("cluster").order_by("name")
        ),
    }
    return render(request, "inventory/model.html", context)


class ModelPages(ResourcePages):
    """Models by their checkpoints, which their numbers are read from."""

    name, at, what = "model", "models", gettext_lazy("model")
    model, form, related = LanguageModel, LanguageModelForm, ()
    needed = dict.fromkeys(ResourcePages.pages, SITE_OPERATOR)
    template = "inventory/model_edit.html"
    submits = {"new": gettext_lazy("Create model")}
    intros = {
        "new": gettext_lazy(
            "Say where the model is; its numbers are read from there and can be changed."
        ),
        "edit": gettext_lazy("Plans made before keep the numbers they were made with."),
        "delete": gettext_lazy("Its profiles and plans go with it; files on the nodes stay."),
    }

    def list_place(self, cluster: None) -> tuple[str, str]:
        return reverse("models"), _("Models")

    def row_place(self, row: LanguageModel) -> tuple[str, str]:
        return reverse("model", args=[row.pk]), row.name

    def after_new(self, request: HttpRequest, row: LanguageModel) -> str:
        return self.row_place(row)[0]


@needs(change=SITE_OPERATOR)
def model_read(request: HttpRequest) -> HttpResponse:
    """The numbers of the form, read from the checkpoint that is being typed.

    A name that was typed stays; one that was read before is replaced.
    """
    typed = request.POST.dict()
    given = typed.get("checkpoint", "").strip()
    facts, refused = None, ""
    if given:
        try:
            facts = checkpoint_reading.read_checkpoint(given)
        except checkpoint_reading.CheckpointRefused as error:
            refused = str(error)
    if facts is not None:
        typed |= checkpoint_reading.model_columns(facts)
        if typed.get("name", "") in ("", typed.get("read_name")):
            typed["name"] = facts.name
    context = {
        "form": LanguageModelForm(initial=typed),
        "facts": facts,
        "refused": refused,
        "fits": [] if facts is None else fits_of_facts(facts),
        "read_name": "" if facts is None else facts.name,
    }
    return render(request, "inventory/_model_numbers.html", context)
