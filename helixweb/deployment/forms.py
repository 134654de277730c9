"""The form that deploys a plan."""

from django import forms

from helixweb.deployment.services import DeployOptions

DEFAULTS = DeployOptions()
LARGEST = 2**20


class DeployForm(forms.Form):
    """A blank field takes its default, so the button on a plan's page needs none of them."""

    max_context_tokens = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=LARGEST,
        label="Longest request (tokens)",
        help_text="Prompt and answer together. Blank: what the model allows.",
    )
    max_queued_requests = forms.IntegerField(
        required=False,
        min_value=0,
        max_value=LARGEST,
        label="Requests that may wait",
        help_text=f"Beyond them clients are told to come back later. "
        f"Blank: {DEFAULTS.max_queued_requests}.",
    )
    kv_high_water = forms.FloatField(
        required=False,
        min_value=0.05,
        max_value=1.0,
        label="KV high-water mark",
        help_text=f"Share of a node's KV cache that requests may be planned to fill, 0.05 to 1. "
        f"Blank: {DEFAULTS.kv_high_water}.",
    )
    max_batch_tokens = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=LARGEST,
        label="Tokens in one step",
        help_text=f"At most so many rows of prompts and decodes. "
        f"Blank: {DEFAULTS.max_batch_tokens}.",
    )
    page_tokens = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=1024,
        label="Tokens in a KV page",
        help_text=f"Blank: {DEFAULTS.page_tokens}.",
    )

    def deploy_options(self) -> DeployOptions:
        """Call after `is_valid`."""
        given = {name: value for name, value in self.cleaned_data.items() if value is not None}
        return DeployOptions(**given)
