"""The form that deploys a plan."""

from dataclasses import fields

from django import forms

from helixweb.deployment.options import (
    DEFAULTS,
    MAX_PAGE_TOKENS,
    MAX_REQUESTS,
    MAX_TOKENS,
    MIN_HIGH_WATER,
    DeployOptions,
)

OPTION_NAMES = [field.name for field in fields(DeployOptions)]
MAX_GENERATION = 2**31 - 1


class DeployForm(forms.Form):
    """A field that is blank or not sent takes its default: a plan's page has a button alone."""

    # The cluster's generation when the page was shown: what the person means to replace.
    seen_generation = forms.IntegerField(
        required=False, min_value=0, max_value=MAX_GENERATION, widget=forms.HiddenInput
    )
    max_context_tokens = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=MAX_TOKENS,
        label="Longest request (tokens)",
        help_text="Prompt and answer together. Blank: what the model allows.",
    )
    max_queued_requests = forms.IntegerField(
        required=False,
        min_value=0,
        max_value=MAX_REQUESTS,
        label="Requests that may wait",
        initial=DEFAULTS.max_queued_requests,
        help_text="Beyond them clients are told to come back later.",
    )
    kv_high_water = forms.FloatField(
        required=False,
        min_value=MIN_HIGH_WATER,
        max_value=1.0,
        label="KV high-water mark",
        initial=DEFAULTS.kv_high_water,
        help_text="Share of a node's KV cache that requests may be planned to fill, "
        f"{MIN_HIGH_WATER} to 1.",
    )
    max_batch_tokens = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=MAX_TOKENS,
        label="Tokens in one step",
        initial=DEFAULTS.max_batch_tokens,
        help_text="At most so many rows of prompts and decodes.",
    )
    page_tokens = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=MAX_PAGE_TOKENS,
        label="Tokens in a KV page",
        initial=DEFAULTS.page_tokens,
        help_text="A request takes whole pages in every layer.",
    )

    def deploy_options(self) -> DeployOptions:
        """Call after `is_valid`."""
        values = {name: self.cleaned_data[name] for name in OPTION_NAMES}
        return DeployOptions(**{name: value for name, value in values.items() if value is not None})
