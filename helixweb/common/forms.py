"""The form of a browser's preferences, and forms that offer rows of clusters."""

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from helixweb.common.queries import within
from helixweb.common.zones import zone_names


class ScopedForm(forms.Form):
    """A form that offers the rows in `scope`, which may be a request."""

    def __init__(self, *args: Any, scope: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for field in self.fields.values():
            if isinstance(field, forms.ModelChoiceField):
                field.queryset = within(field.queryset, scope)


def _zones() -> list[Any]:
    return [("", _("the browser's")), *((name, name) for name in zone_names())]


class PreferencesForm(forms.Form):
    """Preferences that a browser stores in cookies."""

    theme = forms.ChoiceField(
        required=False,
        choices=[("", _("as the system says")), ("light", _("light")), ("dark", _("dark"))],
    )
    zone = forms.ChoiceField(required=False, label=_("Time zone"), choices=_zones)
    language = forms.ChoiceField(required=False, choices=[("", "English"), ("zh-hans", "简体中文")])
