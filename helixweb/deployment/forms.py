"""The form that deploys a plan."""

import re
from collections.abc import Callable
from typing import Any

from django import forms
from django.utils.text import format_lazy
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from helixweb.common.queries import parsed_id
from helixweb.deployment.models import Deployment
from helixweb.deployment.options import (
    DEFAULTS,
    ENGINES,
    MAX_PAGE_TOKENS,
    MAX_RANKS,
    MAX_REQUESTS,
    MAX_TOKENS,
    MIN_HIGH_WATER,
    MIN_THETA,
    OPTION_NAMES,
    DeployOptions,
    trouble_of_backend,
    trouble_of_engine,
)
from planner.routers.load_aware import MAX_THETA

MAX_GENERATION = 2**31 - 1


class RanksByNodeField(forms.Field):
    """`NODE=RANKS` separated by blanks or commas; a mapping when cleaned."""

    widget = forms.TextInput

    def to_python(self, value: Any) -> dict[str, int]:
        ranks: dict[str, int] = {}
        for word in re.split(r"[\s,;]+", str(value or "").strip()):
            name, _equals, number = word.rpartition("=")
            if not word:
                continue
            if not name or not (number.isascii() and number.isdecimal()):
                raise forms.ValidationError(
                    _(
                        "%(word)s does not say how many ranks which node has; write NODE=RANKS, "
                        "for example gpu-a=2."
                    )
                    % {"word": repr(word)}
                )
            if parsed_id(number) not in range(1, MAX_RANKS + 1):
                raise forms.ValidationError(
                    _("%(word)s: ranks are from 1 to %(max_ranks)s.")
                    % {"word": repr(word), "max_ranks": MAX_RANKS}
                )
            if name in ranks:
                raise forms.ValidationError(
                    _("Node %(name)s is there twice; leave one out.") % {"name": repr(name)}
                )
            ranks[name] = int(number)
        return ranks


class WordByNodeField(forms.Field):
    """`NODE=WORD` separated by blanks; a mapping when cleaned. `trouble_of` a word: why it is none
    of those that are taken; empty if it is."""

    widget = forms.TextInput

    def __init__(self, *, trouble_of: Callable[[str], str], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._trouble_of = trouble_of

    def to_python(self, value: Any) -> dict[str, str]:
        words: dict[str, str] = {}
        for pair in str(value or "").split():
            name, _equals, word = pair.partition("=")
            if trouble := self._trouble_of(word):
                raise forms.ValidationError(
                    _("%(word)s: %(trouble)s") % {"word": repr(pair), "trouble": trouble}
                )
            if not name or name in words:
                raise forms.ValidationError(
                    _("%(word)s does not say which node, or is there twice.") % {"word": repr(pair)}
                )
            words[name] = word
        return words


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
        label=gettext_lazy("Longest request (tokens)"),
        help_text=gettext_lazy("Prompt and answer together. Blank: what the model allows."),
    )
    max_queued_requests = forms.IntegerField(
        required=False,
        min_value=0,
        max_value=MAX_REQUESTS,
        label=gettext_lazy("Requests that may wait"),
        initial=DEFAULTS.max_queued_requests,
        help_text=gettext_lazy("Beyond them clients are told to come back later."),
    )
    kv_high_water = forms.FloatField(
        required=False,
        min_value=MIN_HIGH_WATER,
        max_value=1.0,
        label=gettext_lazy("KV high-water mark"),
        initial=DEFAULTS.kv_high_water,
        help_text=format_lazy(
            gettext_lazy(
                "Share of a node's KV cache that requests may be planned to fill, {least} to 1."
            ),
            least=MIN_HIGH_WATER,
        ),
    )
    max_batch_tokens = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=MAX_TOKENS,
        label=gettext_lazy("Tokens in one step"),
        initial=DEFAULTS.max_batch_tokens,
        help_text=gettext_lazy(
            "At most so many rows of prompts and decodes. Up to twice as many where a request runs "
            "on one node alone."
        ),
    )
    page_tokens = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=MAX_PAGE_TOKENS,
        label=gettext_lazy("Tokens in a KV page"),
        initial=DEFAULTS.page_tokens,
        help_text=gettext_lazy("A request takes whole pages in every layer."),
    )
    tensor_parallel = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=MAX_RANKS,
        label=gettext_lazy("Ranks that share each layer"),
        initial=DEFAULTS.tensor_parallel,
        help_text=gettext_lazy(
            "Tensor parallelism: processes of a node, a GPU each. 1: a node is one process."
        ),
    )
    tensor_parallel_by_node = RanksByNodeField(
        required=False,
        label=gettext_lazy("Nodes with another number of ranks"),
        help_text=gettext_lazy("NODE=RANKS, separated by blanks, for example gpu-a=2 gpu-b=4."),
    )
    engine = forms.ChoiceField(
        required=False,
        choices=[(engine, engine) for engine in ENGINES],
        label=gettext_lazy("Engine"),
        initial=DEFAULTS.engine,
        help_text=gettext_lazy(
            "What computes the layers. auto: what the model names, else what suits each node."
        ),
    )
    engine_by_node = WordByNodeField(
        required=False,
        trouble_of=trouble_of_engine,
        label=gettext_lazy("Nodes with another engine"),
        help_text=gettext_lazy("NODE=auto, vllm or helix, separated by blanks."),
    )
    backend_by_node = WordByNodeField(
        required=False,
        trouble_of=trouble_of_backend,
        label=gettext_lazy("Nodes whose instances something else runs"),
        help_text=gettext_lazy(
            "NODE=helix, vllm or transformers, or NODE=http://… for a server that is there."
        ),
    )
    theta = forms.FloatField(
        required=False,
        min_value=MIN_THETA,
        max_value=MAX_THETA,
        label=gettext_lazy("Theta of the load-aware router"),
        initial=DEFAULTS.theta,
        help_text=gettext_lazy("How much an instance that gets full counts as busier."),
    )

    @staticmethod
    def initial_of(row: Deployment) -> dict[str, Any]:
        """The options that a deployment had, as the form shows them."""
        values = {name: getattr(row, name) for name in OPTION_NAMES}
        return {
            name: " ".join(f"{node}={one}" for node, one in value.items())
            if isinstance(value, dict)
            else value
            for name, value in values.items()
        }

    def deploy_options(self) -> DeployOptions:
        """Call after `is_valid`."""
        values = {name: self.cleaned_data[name] for name in OPTION_NAMES}
        told = {name: value for name, value in values.items() if value not in (None, "")}
        return DeployOptions(**told)
