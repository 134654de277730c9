"""Language models: their bytes, where they fit, and the form whose numbers are read from a
checkpoint."""

from typing import Any, cast

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from helixweb.access.needs import SITE_OPERATOR, VIEWER, needs
from helixweb.inventory.columns import columns_of
from helixweb.inventory.engines import engine_groups
from helixweb.inventory.fits import fits_of_facts, fits_of_models
from helixweb.inventory.forms import numbers_of
from helixweb.inventory.models import LanguageModel, Node, Profile
from helixweb.inventory.services import checkpoint_reading
from helixweb.inventory.services.checkpoint_reading import (
    NEEDED_NUMBERS,
    CheckpointRefused,
    filled_from,
    read_checkpoint,
)
from helixweb.inventory.views.editing import ResourcePages
from helixweb.inventory.views.profiles import profiles_memory
from runtime.protocol.engine_names import Engine

_HAVE_DEFAULTS = ("token_bytes", "max_context_tokens", "engine")
MAX_PROFILES = 30


class LanguageModelForm(forms.ModelForm):  # type: ignore[type-arg]
    """A model by its checkpoint alone: numbers that are left blank are read from it."""

    class Meta:
        model = LanguageModel
        fields = [
            "checkpoint",
            *(name for name in columns_of(LanguageModel) if name != "checkpoint"),
        ]
        widgets = {"why_not_split": forms.HiddenInput}
        field_classes = numbers_of(LanguageModel)
        labels = {
            "checkpoint": gettext_lazy("Folder, GGUF file, or name on Hugging Face"),
            "embedding_bytes": gettext_lazy("Bytes of the embedding"),
            "head_bytes": gettext_lazy("Bytes of the output head"),
            "head_dim": gettext_lazy("Size of a head"),
            "dtype": gettext_lazy("Type of the weights"),
            "num_layers": gettext_lazy("Layers"),
            "token_bytes": gettext_lazy("Bytes of a token"),
            "max_context_tokens": gettext_lazy("Longest request (tokens)"),
            "num_heads": gettext_lazy("Query heads"),
            "num_kv_heads": gettext_lazy("KV heads"),
            "vllm_flags": gettext_lazy("vLLM flags"),
        }
        help_texts = {
            "name": gettext_lazy("What chat clients ask for."),
            "bytes_per_layer": gettext_lazy(
                "Weights of one layer: parameters x bytes per parameter."
            ),
            "activation_bytes_per_token": gettext_lazy(
                "Hidden size x bytes per value; sent between nodes."
            ),
            "token_bytes": gettext_lazy("A token between the coordinator and a node."),
            "checkpoint": gettext_lazy(
                "A whole path on the nodes, such as /models/smollm2, or a name such as "
                "HuggingFaceTB/SmolLM2-135M-Instruct. Everything else is read from it."
            ),
            "embedding_bytes": gettext_lazy("On the node with the first layer."),
            "head_bytes": gettext_lazy(
                "On the node with the last layer, with the last norm; little more if the embedding "
                "is the output head too."
            ),
            "max_context_tokens": gettext_lazy("Prompt and answer together."),
            "num_heads": gettext_lazy(
                "If given, a deployment's tensor parallelism is checked against them."
            ),
            "num_kv_heads": gettext_lazy(
                "Heads of keys and values; with grouped queries fewer than those."
            ),
            "engine": gettext_lazy(
                "What computes the layers, unless a deployment says otherwise. auto: what suits "
                "each node."
            ),
            "vllm_flags": gettext_lazy(
                "For vLLM instances that agents start, such as --enable-auto-tool-choice "
                "--tool-call-parser hermes. They apply from the next deployment."
            ),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in (*NEEDED_NUMBERS, *_HAVE_DEFAULTS, "name"):
            self.fields[name].required = False
        for name in _HAVE_DEFAULTS:
            self.fields[name].initial = None  # blank: read from the checkpoint
        engine = cast(forms.ChoiceField, self.fields["engine"])
        engine.choices = [(word.value, gettext_lazy(word)) for word in Engine]
        # read while it is typed
        self.fields["checkpoint"].widget.attrs |= {
            "hx-post": reverse("model-read"),
            "hx-trigger": "input changed delay:500ms",
            "hx-target": "#model-numbers",
            "hx-swap": "outerHTML",
            "hx-sync": "this:replace",
            "spellcheck": "false",
        }

    @property
    def name_alone(self) -> list[forms.BoundField]:
        """The name, which a checkpoint suggests."""
        return [self["name"]]

    @property
    def numbers(self) -> list[forms.BoundField]:
        """The fields that a checkpoint fills."""
        shown = [field for field in self if not field.is_hidden]
        return [field for field in shown if field.name not in ("checkpoint", "name")]

    def clean(self) -> dict[str, Any]:
        """Blank numbers are read from the checkpoint."""
        cleaned: dict[str, Any] = super().clean() or {}
        if not self.errors and any(cleaned.get(key) is None for key in NEEDED_NUMBERS):
            if not cleaned.get("checkpoint"):
                self.add_error(
                    "checkpoint", _("Say where the model is, or enter its numbers below.")
                )
                return cleaned
            try:
                cleaned = filled_from(read_checkpoint(cleaned["checkpoint"]), cleaned)
            except CheckpointRefused as error:
                self.add_error("checkpoint", str(error))
                return cleaned
        if not cleaned.get("name") and not self.errors:
            self.add_error("name", self.fields["name"].error_messages["required"])
        for key in _HAVE_DEFAULTS:
            if cleaned.get(key, 0) in (None, ""):
                cleaned[key] = getattr(LanguageModel(), key)
        return cleaned


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
            row, Node.objects.within(request).only("name", "cluster", "hardware").order_by("name")
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
