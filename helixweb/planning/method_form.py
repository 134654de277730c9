"""Whether a plan shall serve by pipelines of stages, by whole-model instances, or by both."""

from typing import Any

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from helixweb.planning import options
from helixweb.planning.objectives import CHOICES

METHOD_LABELS = {
    "pipelines": gettext_lazy("Pipelines: every node runs some layers"),
    "instances": gettext_lazy("Instances: every machine that can runs the whole model"),
    "mixed": gettext_lazy("Mixed: whichever is forecast to write most"),
}
BACKEND_LABELS = {
    "helix": gettext_lazy("HelixWeb's engine"),
    "vllm": gettext_lazy("vllm serve"),
    "transformers": gettext_lazy("transformers serve"),
}


class MethodForm(forms.Form):
    """The part of a form that asks for it; `method_options` gives the planner's."""

    method = forms.ChoiceField(
        required=False,
        label=gettext_lazy("Serve by"),
        choices=[(name, METHOD_LABELS[name]) for name in options.METHODS],
        initial=options.DEFAULTS.method,
        help_text=gettext_lazy("Instances are weighed by decode throughput only."),
    )
    backend = forms.ChoiceField(
        required=False,
        label=gettext_lazy("Instances run by"),
        choices=[(name, BACKEND_LABELS[name]) for name in options.INSTANCE_BACKENDS],
        initial=options.DEFAULTS.backend,
    )
    tensor_parallel = forms.IntegerField(
        required=False,
        label=gettext_lazy("GPUs of an instance"),
        min_value=1,
        max_value=options.MAX_DEGREE,
        help_text=gettext_lazy("Blank: the best number on each machine."),
    )

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        is_weighed = cleaned.get("method") in ("instances", "mixed")
        if is_weighed and cleaned.get("objective", "decode") != "decode":
            self.add_error(
                "method",
                _("Instances are weighed by decode throughput only: choose '%(choice)s'.")
                % {"choice": _(CHOICES["decode"])},
            )
        method = cleaned.get("method") or options.DEFAULTS.method
        refused = options.why_no_degree(method, cleaned.get("tensor_parallel"))
        if refused:
            self.add_error("tensor_parallel", refused)
        return cleaned

    def method_options(self) -> dict[str, Any]:
        """Call after `is_valid`."""
        values = self.cleaned_data
        return {
            "method": values["method"] or options.DEFAULTS.method,
            "backend": values["backend"] or options.DEFAULTS.backend,
            "tensor_parallel": values["tensor_parallel"],
        }
