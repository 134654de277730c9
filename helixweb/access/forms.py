"""Users, their groups and roles, and API keys with their limits."""

from datetime import timedelta
from typing import Any

from django import forms
from django.apps import apps
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.core.exceptions import NON_FIELD_ERRORS
from django.core.validators import MinValueValidator
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from helixweb.access.roles import Role
from helixweb.access.roles_of_holders import NoHolder, holder_named
from helixweb.common import auth
from helixweb.common.api_keys import checked_networks
from helixweb.common.forms import ScopedForm


def _cluster(**options: Any) -> Any:
    """One of the clusters in scope, or none; the model is above this app."""
    rows = apps.get_model("inventory.Cluster").objects.order_by("name")
    return forms.ModelChoiceField(rows, required=False, **options)


class InviteForm(forms.Form):
    """A new user; an existing user gets a new link, and their roles do not change."""

    username = forms.CharField(
        max_length=150, label=gettext_lazy("User name"), validators=[UnicodeUsernameValidator()]
    )
    role = forms.ChoiceField(
        required=False,
        label=gettext_lazy("Role on the whole site"),
        choices=[("", gettext_lazy("none yet")), *Role.choices],
        initial=Role.VIEWER,
        help_text=gettext_lazy("Of a new user. Roles on single clusters are given afterwards."),
    )


class GrantForm(ScopedForm):
    """A role for the user or group of the page."""

    role = forms.ChoiceField(choices=Role.choices)
    cluster = _cluster(label=gettext_lazy("On"), empty_label=gettext_lazy("the whole site"))


class ClusterGrantForm(forms.Form):
    """A role on the cluster that the page is about, for a user or a group by name."""

    name = forms.CharField(max_length=150, label=gettext_lazy("User or group"))
    role = forms.ChoiceField(choices=Role.choices)

    def clean_name(self) -> Any:
        try:
            return holder_named(self.cleaned_data["name"])
        except NoHolder as error:
            raise forms.ValidationError(str(error)) from error


class GroupForm(forms.Form):
    """A group's name and its members, one user name per line."""

    name = forms.CharField(max_length=150)
    members = forms.CharField(
        required=False,
        widget=forms.Textarea(attrs={"rows": 6}),
        help_text=gettext_lazy("One user name a line."),
    )

    def __init__(self, *args: Any, group: Group | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._group = group
        if group is not None:
            del self.fields["name"]

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"]
        if Group.objects.filter(name=name).exists():
            raise forms.ValidationError(
                _("There is a group %(name)s already; choose another name.") % {"name": name}
            )
        return name

    def clean_members(self) -> list[Any]:
        names = dict.fromkeys(self.cleaned_data["members"].split())
        users = get_user_model().objects.filter(username__in=names)
        found = {user.get_username(): user for user in users}
        unknown = [name for name in names if name not in found]
        if unknown:
            raise forms.ValidationError(
                _("There is no user %(names)s; let them in first.")
                % {"names": ", ".join(unknown[:5])}
            )
        return list(found.values())


def _budget(label: Any, *, max_value: int = 2**31 - 1, **more: Any) -> forms.IntegerField:
    return forms.IntegerField(
        required=False, label=label, validators=[MinValueValidator(1)], max_value=max_value, **more
    )


class ApiKeyForm(ScopedForm):
    """`serve` is what most programs need: the OpenAI endpoint."""

    name = forms.CharField(
        max_length=80,
        widget=forms.TextInput(attrs={"placeholder": "laptop"}),
    )
    scopes = forms.MultipleChoiceField(
        choices=[
            (auth.READ, gettext_lazy("read: look at everything over the REST API")),
            (auth.WRITE, gettext_lazy("write: change it")),
            (auth.SERVE, gettext_lazy("serve: ask deployed models over the OpenAI API")),
            (auth.ADMIN, gettext_lazy("admin: say who may do what, where you may")),
        ],
        widget=forms.CheckboxSelectMultiple,
        initial=[auth.SERVE],
        error_messages={"required": gettext_lazy("Choose at least one.")},
    )
    cluster = _cluster(
        label=gettext_lazy("For"), empty_label=gettext_lazy("every cluster that you may see")
    )
    valid_days = forms.IntegerField(
        required=False,
        min_value=1,
        max_value=3650,
        label=gettext_lazy("Days until it expires"),
        help_text=gettext_lazy("Empty: never."),
    )
    networks = forms.CharField(
        required=False,
        label=gettext_lazy("Networks it may be used from"),
        widget=forms.Textarea(attrs={"rows": 2, "placeholder": "192.0.2.0/24"}),
        help_text=gettext_lazy("One a line. Empty: from everywhere."),
    )
    requests_per_min = _budget(gettext_lazy("Requests a minute"))
    tokens_per_min = _budget(gettext_lazy("Tokens a minute"))
    tokens_per_day = _budget(
        gettext_lazy("Tokens a day"),
        max_value=2**53 - 1,
        help_text=gettext_lazy("Read and written, from midnight to midnight UTC."),
    )

    @property
    def has_wrong_limits(self) -> bool:
        """True if a field that the page folds away has an error."""
        return bool(set(self.errors) - {"name", "scopes", NON_FIELD_ERRORS})

    def clean_networks(self) -> list[str]:
        try:
            return checked_networks(self.cleaned_data["networks"].split())
        except ValueError as error:
            raise forms.ValidationError(str(error)) from error

    def clean(self) -> dict[str, Any]:
        """The columns of a key."""
        days = self.cleaned_data.pop("valid_days", None)
        self.cleaned_data["expires_at"] = timezone.now() + timedelta(days=days) if days else None
        return self.cleaned_data
