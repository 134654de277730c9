"""The form that deploys a plan."""

from collections.abc import Callable, Mapping
from typing import Any

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from helixweb.common.options import form_field
from helixweb.common.queries import parsed_id
from helixweb.deployment.backends import trouble_of_backend
from helixweb.deployment.options import ENGINES, MAX_RANKS, DeployOptions
from planner.domain.option import options_of

MAX_GENERATION = 2**31 - 1


class ByNodeField(forms.Field):
    """`NODE=WORD` separated by blanks or commas; a mapping when cleaned.

    `trouble_of` a word: why it cannot be used; empty if it can.
    """

    widget = forms.TextInput

    def __init__(self, *, kind: str, trouble_of: Callable[[str], str], **kwargs: Any) -> None:
        super().__init__(required=False, **kwargs)
        self._kind, self._trouble_of = kind, trouble_of

    def prepare_value(self, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        return " ".join(f"{node}={one}" for node, one in value.items())

    def to_python(self, value: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for pair in str(value or "").replace(",", " ").replace(";", " ").split():
            name, _equals, word = pair.partition("=")
            if trouble := self._trouble_of(word):
                raise forms.ValidationError(
                    _("%(word)s: %(trouble)s") % {"word": repr(pair), "trouble": trouble}
                )
            if not name or name in found:
                raise forms.ValidationError(
                    _("%(word)s does not say which node, or is there twice; write NODE=%(kind)s.")
                    % {"word": repr(pair), "kind": self._kind}
                )
            found[name] = int(word) if self._kind == "RANKS" else word
        return found


def _trouble_of_engine(text: str) -> str:
    if text in ENGINES:
        return ""
    return _("%(text)s is no engine; write auto, vllm or helix") % {"text": repr(text)}


def _trouble_of_ranks(text: str) -> str:
    if text.isascii() and text.isdecimal() and parsed_id(text) in range(1, MAX_RANKS + 1):
        return ""
    return _("ranks are from 1 to %(max_ranks)s; write NODE=RANKS") % {"max_ranks": MAX_RANKS}


_BY_NODE = {
    "tensor_parallel_by_node": ("RANKS", _trouble_of_ranks),
    "engine_by_node": ("ENGINE", _trouble_of_engine),
    "backend_by_node": ("BACKEND", trouble_of_backend),
}


class DeployForm(forms.Form):
    """A field that is blank or not sent takes its default: a plan's page has a button alone."""

    # The cluster's generation when the page was shown: what the person means to replace.
    seen_generation = forms.IntegerField(
        required=False, min_value=0, max_value=MAX_GENERATION, widget=forms.HiddenInput
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, option in options_of(DeployOptions).items():
            if name in _BY_NODE:
                kind, trouble_of = _BY_NODE[name]
                self.fields[name] = ByNodeField(
                    kind=kind,
                    trouble_of=trouble_of,
                    label=gettext_lazy(option.spec.label),
                    help_text=gettext_lazy(option.spec.help),
                )
            else:
                self.fields[name] = form_field(option, required=False)
