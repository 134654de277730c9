"""The form of a language model, whose numbers are read from its checkpoint."""

from typing import Any

from django import forms
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from helixweb.inventory.columns import columns_of
from helixweb.inventory.forms import numbers_of
from helixweb.inventory.models import LanguageModel
from helixweb.inventory.services.checkpoint_reading import (
    NEEDED_NUMBERS,
    CheckpointRefused,
    filled_from,
    read_checkpoint,
)

_HAVE_DEFAULTS = ("token_bytes", "max_context_tokens", "engine")


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
                "If told, a deployment's tensor parallelism is checked against them."
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
