"""The form that deploys a plan."""

from collections.abc import Mapping
from typing import Any

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from rest_framework import serializers

from helixweb.common.options import form_field
from helixweb.deployment.options import DeployOptions
from helixweb.deployment.serializers import DeployRequestSerializer
from planner import options_of

MAX_GENERATION = 2**31 - 1


class ByNodeField(forms.Field):
    """`NODE=VALUE` separated by blanks or commas; a mapping when cleaned, by the REST API's field
    of the same name."""

    widget = forms.TextInput

    def __init__(self, rest: serializers.Field[Any, Any, Any, Any], **kwargs: Any) -> None:
        super().__init__(required=False, **kwargs)
        self._rest = rest

    def prepare_value(self, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        return " ".join(f"{node}={one}" for node, one in value.items())

    def to_python(self, value: Any) -> dict[str, Any]:
        found: dict[str, str] = {}
        for pair in str(value or "").replace(",", " ").replace(";", " ").split():
            name, _equals, found_value = pair.partition("=")
            if not name or name in found:
                raise forms.ValidationError(
                    _("%(word)s does not say which node, or is there twice; write NODE=VALUE.")
                    % {"word": repr(pair)}
                )
            found[name] = found_value
        try:
            return dict(self._rest.run_validation(found))
        except serializers.ValidationError as error:
            whys: Any = error.detail
            raise forms.ValidationError(
                [f"{name}={found[name]}: {' '.join(why)}" for name, why in whys.items()]
            ) from error


class DeployForm(forms.Form):
    """A field that is blank or not sent takes its default: a plan's page has a button alone."""

    # The cluster's generation when the page was shown: the one that the user wants to replace.
    seen_generation = forms.IntegerField(
        required=False, min_value=0, max_value=MAX_GENERATION, widget=forms.HiddenInput
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        rest = DeployRequestSerializer().fields
        for name, option in options_of(DeployOptions).items():
            if option.is_several:
                spec = option.spec
                label, help_text = gettext_lazy(spec.label), gettext_lazy(spec.help)
                self.fields[name] = ByNodeField(rest[name], label=label, help_text=help_text)
            else:
                self.fields[name] = form_field(option, required=False)
