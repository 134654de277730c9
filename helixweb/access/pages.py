"""Pages of users, groups, roles, API keys and log-ins, and their forms."""

from datetime import timedelta
from typing import Any

from django import forms
from django.apps import apps
from django.contrib import messages
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.core.exceptions import NON_FIELD_ERRORS
from django.core.validators import MinValueValidator
from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.cache import never_cache

from helixweb.access import keys, people, roles_of_holders, sessions
from helixweb.access.models import Grant
from helixweb.access.needs import ADMIN, OWN, SITE_ADMIN, SITE_VIEWER, VIEWER, needs
from helixweb.access.roles import Role
from helixweb.access.roles_of_holders import NoHolder, holder_named
from helixweb.access.scope import rights_of_request
from helixweb.common import auth
from helixweb.common.api_keys import checked_networks
from helixweb.common.forms import ScopedForm
from helixweb.common.models import ApiKey, SessionOfUser
from helixweb.common.pages import form_page, page_of, refusals_shown


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


@never_cache
@needs(SITE_VIEWER, SITE_ADMIN)
def users(request: HttpRequest) -> HttpResponse:
    """The list for all who may see the whole site; an administrator's POST makes a user and shows
    their link once."""
    form, link = InviteForm(request.POST if request.method == "POST" else None), ""
    if form.is_valid():
        link = people.invite(form.cleaned_data["username"], role=form.cleaned_data["role"])
        form = InviteForm()
    keys = Count("apikey", filter=Q(apikey__revoked_at__isnull=True), distinct=True)
    rows = get_user_model().objects.annotate(num_keys=keys).order_by("username")
    rows = rows.prefetch_related("grants__cluster", "groups")
    return form_page(request, "access/users.html", form, link=link, page=page_of(request, rows))


@never_cache
@needs(SITE_VIEWER, SITE_ADMIN, row=get_user_model())
def user(request: HttpRequest, row: Any) -> HttpResponse:
    """One user's roles; a POST gives one more, or another one in place of it."""
    form = GrantForm(request.POST or None, scope=request)
    if form.is_valid():
        roles_of_holders.give(row, **form.cleaned_data)
        messages.success(request, _("The role is given."))
        return redirect("user", pk=row.pk)
    return form_page(
        request,
        "access/user.html",
        form,
        row=row,
        grants=row.grants.select_related("cluster"),
        groups=row.groups.prefetch_related("grants__cluster").order_by("name"),
        sessions=sessions.own_sessions(row),
    )


def _set_active(request: HttpRequest, row: Any, said: str, *, is_active: bool) -> HttpResponse:
    with refusals_shown(request):
        people.set_active(row, is_active=is_active, by=request.user)
        messages.success(request, said % {"user": row.get_username()})
    return redirect("users")


@needs(change=SITE_ADMIN, row=get_user_model())
def keep_out(request: HttpRequest, row: Any) -> HttpResponse:
    """End the user's sessions and API keys."""
    return _set_active(request, row, _("%(user)s is logged out and kept out."), is_active=False)


@needs(change=SITE_ADMIN, row=get_user_model())
def let_in(request: HttpRequest, row: Any) -> HttpResponse:
    """Let the user log in again."""
    return _set_active(request, row, _("%(user)s may log in again."), is_active=True)


@needs(change=SITE_ADMIN, row=get_user_model())
def log_out_everywhere(request: HttpRequest, row: Any) -> HttpResponse:
    """End the user's sessions; they may log in again."""
    sessions.end_all(row)
    messages.success(request, _("%(user)s is logged out.") % {"user": row.get_username()})
    return redirect("user", pk=row.pk)


@needs(change=ADMIN, row=Grant)
def withdraw(request: HttpRequest, grant: Grant) -> HttpResponse:
    """Take a role back; of one on a cluster an administrator of the cluster may."""
    roles_of_holders.withdraw(grant)
    messages.success(request, _("The role is taken back."))
    governs_site = rights_of_request(request).site >= Role.ADMIN.rank
    from_cluster = request.POST.get("from") == "cluster" or not governs_site
    if grant.cluster_id is not None and from_cluster:
        return redirect("cluster-access", pk=grant.cluster_id)
    if grant.user_id is not None:
        return redirect("user", pk=grant.user_id)
    return redirect("group", pk=grant.group_id)


@never_cache
@needs(SITE_VIEWER, SITE_ADMIN)
def groups(request: HttpRequest) -> HttpResponse:
    """The list of groups; an administrator's POST creates one."""
    form = GroupForm(request.POST if request.method == "POST" else None)
    if form.is_valid():
        made = roles_of_holders.make_group(form.cleaned_data["name"])
        roles_of_holders.set_members(made, form.cleaned_data["members"])
        return redirect("group", pk=made.pk)
    rows = Group.objects.annotate(num_members=Count("user", distinct=True))
    shown = rows.prefetch_related("grants__cluster").order_by("name")
    return form_page(request, "access/groups.html", form, groups=shown)


@never_cache
@needs(SITE_VIEWER, SITE_ADMIN, row=Group)
def group(request: HttpRequest, row: Group) -> HttpResponse:
    """A group's roles and members; a POST gives a role or sets the members."""
    sent = request.POST if request.method == "POST" else None
    is_role = sent is not None and "role" in sent
    grant_form = GrantForm(sent if is_role else None, scope=request)
    names = "\n".join(sorted(user.get_username() for user in row.user_set.all()))
    members_form = GroupForm(None if is_role else sent, group=row, initial={"members": names})
    if grant_form.is_valid():
        roles_of_holders.give(row, **grant_form.cleaned_data)
        messages.success(request, _("The role is given."))
        return redirect("group", pk=row.pk)
    if members_form.is_valid():
        roles_of_holders.set_members(row, members_form.cleaned_data["members"])
        messages.success(request, _("The members are kept."))
        return redirect("group", pk=row.pk)
    context = {
        "row": row,
        "form": grant_form,
        "members_form": members_form,
        "members": row.user_set.order_by("username"),
        "grants": row.grants.select_related("cluster"),
    }
    status = 422 if sent is not None else 200
    return render(request, "access/group.html", context, status=status)


@needs(change=SITE_ADMIN, row=Group)
def group_delete(request: HttpRequest, row: Group) -> HttpResponse:
    """Delete a group and the roles it gave."""
    roles_of_holders.delete_group(row)
    messages.success(request, _("Group %(name)s is deleted.") % {"name": row.name})
    return redirect("groups")


@never_cache
@needs(VIEWER, ADMIN, row="inventory.Cluster")
def cluster_access(request: HttpRequest, cluster: Any) -> HttpResponse:
    """Users and groups with a role on the cluster; an administrator's POST gives one."""
    form = ClusterGrantForm(request.POST if request.method == "POST" else None)
    if form.is_valid():
        given = form.cleaned_data
        roles_of_holders.give(given["name"], given["role"], cluster=cluster)
        messages.success(request, _("The role is given."))
        return redirect("cluster-access", pk=cluster.pk)
    return form_page(
        request,
        "access/cluster_access.html",
        form,
        cluster=cluster,
        grants=Grant.objects.select_related("user", "group").filter(cluster=cluster),
    )


@never_cache
@needs(OWN, OWN)
def api_keys(request: HttpRequest) -> HttpResponse:
    """List one's keys; POST creates one and shows its secret this once."""
    form, secret = ApiKeyForm(request.POST or None, scope=request), None
    if form.is_valid():
        secret = keys.make(user=request.user, **form.cleaned_data).secret
        form = ApiKeyForm(scope=request)
    rows = ApiKey.objects.filter(user=request.user)  # type: ignore[misc]
    now = timezone.now()
    shown = keys.used_by(rows.select_related("cluster", "user").order_by("-created_at"), now=now)
    return form_page(request, "access/api_keys.html", form, keys=shown, secret=secret, now=now)


@needs(change=OWN)
def revoke_api_key(request: HttpRequest, pk: int) -> HttpResponse:
    """End one of one's own keys."""
    key = get_object_or_404(ApiKey, pk=pk, user=request.user)
    keys.end(key)
    messages.success(request, _("The key %(name)s is revoked.") % {"name": key.name})
    return redirect("api-keys")


@needs(OWN)
def log_ins(request: HttpRequest) -> HttpResponse:
    """The user's own sessions."""
    rows, here = sessions.own_sessions(request.user), request.session.session_key
    return render(request, "access/sessions.html", {"rows": rows, "here": here})


@needs(change=OWN)
def log_in_end(request: HttpRequest, pk: int) -> HttpResponse:
    """End one of one's own."""
    sessions.end(get_object_or_404(SessionOfUser, pk=pk, user=request.user))
    messages.success(request, _("That log-in is ended."))
    return redirect("sessions")


@needs(change=OWN)
def log_ins_end(request: HttpRequest) -> HttpResponse:
    """End all but this one."""
    sessions.end_all(request.user, but=request.session.session_key)
    messages.success(request, _("You are logged out everywhere else."))
    return redirect("sessions")
