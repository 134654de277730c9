"""The form of a join command."""

from typing import Any

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from helixweb.inventory.columns import MAX_MACHINES, NAME_LENGTH
from helixweb.inventory.models import JoinToken
from helixweb.inventory.validators import validate_name, validate_node_name


class JoinForm(forms.Form):
    """Which command to make."""

    role = forms.ChoiceField(
        choices=[
            ("node", gettext_lazy("Node: runs layers")),
            ("coordinator", gettext_lazy("Coordinator: faces chat clients")),
        ],
        widget=forms.RadioSelect,
        initial=JoinToken.Role.NODE,
    )
    machines = forms.IntegerField(
        label=gettext_lazy("How many machines"),
        required=False,
        initial=1,
        min_value=1,
        max_value=MAX_MACHINES,
        help_text=gettext_lazy("The same command, run once on each within the hour."),
    )
    name = forms.CharField(
        required=False,
        max_length=NAME_LENGTH,
        validators=[validate_name],
        help_text=gettext_lazy("Blank: the name of the host, with a number if that is taken."),
    )
    region = forms.CharField(
        max_length=NAME_LENGTH,
        validators=[validate_name],
        help_text=gettext_lazy("A node that is declared already keeps its region."),
    )
    service = forms.BooleanField(
        label=gettext_lazy("Start at boot"),
        required=False,
        help_text=gettext_lazy("Nodes only: the agent becomes a systemd unit."),
    )

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        name = cleaned.get("name")
        machines = cleaned["machines"] = cleaned.get("machines") or 1
        if cleaned.get("role") == JoinToken.Role.NODE and name:
            try:
                validate_node_name(name)
            except forms.ValidationError as error:
                self.add_error("name", error)
        if name and machines > 1:
            self.add_error(
                "name",
                _("%(machines)s machines cannot all be called %(name)s; leave the name blank.")
                % {"machines": machines, "name": repr(name)},
            )
        if cleaned.get("role") == JoinToken.Role.COORDINATOR and machines > 1:
            self.add_error(
                "machines", _("Coordinators join one at a time, each by a name of its own; give 1.")
            )
        return cleaned
