"""Pages of users: who may log in, what roles each has, and one-time links for others."""

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import get_user_model
from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache

from helixweb.access import people, roles_of_holders, sessions
from helixweb.access.forms import GrantForm, InviteForm
from helixweb.access.models import Grant
from helixweb.access.needs import ADMIN, SITE_ADMIN, SITE_VIEWER, needs
from helixweb.access.rights import rights_of_request
from helixweb.access.roles import Role
from helixweb.common.pages import form_page, page_of


@never_cache
@needs(SITE_VIEWER, SITE_ADMIN)
def users(request: HttpRequest) -> HttpResponse:
    """The list for all who may see the whole site; an administrator's POST makes a user and shows
    their link once."""
    form, link = InviteForm(request.POST if request.method == "POST" else None), ""
    if form.is_valid():
        role = form.cleaned_data["role"]
        token = people.invite(form.cleaned_data["username"], role=Role(role) if role else None)
        link = f"{settings.HELIX_URL}{people.login_path(token)}"
        form = InviteForm()
    keys = Count("apikey", filter=Q(apikey__revoked_at__isnull=True), distinct=True)
    rows = get_user_model().objects.annotate(num_keys=keys).order_by("username")
    rows = rows.prefetch_related("grants__cluster", "groups")
    page, governs = page_of(request, rows), governs_site(request)
    return form_page(request, "access/users.html", form, link=link, page=page, governs=governs)


@never_cache
@needs(SITE_VIEWER, SITE_ADMIN)
def user(request: HttpRequest, pk: int) -> HttpResponse:
    """One user's roles; a POST gives one more, or another one in place of it."""
    row = get_object_or_404(get_user_model(), pk=pk)
    form = GrantForm(request.POST or None, scope=request)
    if form.is_valid():
        cluster = form.cleaned_data["cluster"]
        roles_of_holders.give(row, Role(form.cleaned_data["role"]), cluster=cluster)
        messages.success(request, _("The role is given."))
        return redirect("user", pk=pk)
    return form_page(
        request,
        "access/user.html",
        form,
        row=row,
        grants=row.grants.select_related("cluster"),
        groups=row.groups.prefetch_related("grants__cluster").order_by("name"),
        sessions=sessions.own_sessions(row),
        governs=governs_site(request),
    )


@needs(change=SITE_ADMIN)
def keep_out(request: HttpRequest, pk: int) -> HttpResponse:
    """End the user's sessions and API keys."""
    row = get_object_or_404(get_user_model(), pk=pk)
    try:
        people.keep_out(row, by=request.user)
    except people.NotYourself as error:
        messages.error(request, str(error))
    else:
        messages.success(
            request, _("%(user)s is logged out and kept out.") % {"user": row.get_username()}
        )
    return redirect("users")


@needs(change=SITE_ADMIN)
def let_in(request: HttpRequest, pk: int) -> HttpResponse:
    """Let the user log in again."""
    row = get_object_or_404(get_user_model(), pk=pk)
    people.let_in(row)
    messages.success(request, _("%(user)s may log in again.") % {"user": row.get_username()})
    return redirect("users")


@needs(change=SITE_ADMIN)
def log_out_everywhere(request: HttpRequest, pk: int) -> HttpResponse:
    """End the user's sessions; they may log in again."""
    row = get_object_or_404(get_user_model(), pk=pk)
    sessions.end_all(row)
    messages.success(request, _("%(user)s is logged out.") % {"user": row.get_username()})
    return redirect("user", pk=pk)


@needs(change=ADMIN, of=Grant)
def withdraw(request: HttpRequest, pk: int) -> HttpResponse:
    """Take a role back; of one on a cluster an administrator of the cluster may."""
    grant = get_object_or_404(Grant.objects.select_related("user", "group", "cluster"), pk=pk)
    roles_of_holders.withdraw(grant)
    messages.success(request, _("The role is taken back."))
    from_cluster = request.POST.get("from") == "cluster" or not governs_site(request)
    if grant.cluster_id is not None and from_cluster:
        return redirect("cluster-access", pk=grant.cluster_id)
    if grant.user_id is not None:
        return redirect("user", pk=grant.user_id)
    return redirect("group", pk=grant.group_id)


def governs_site(request: HttpRequest) -> bool:
    """True if the requester is a site administrator."""
    return rights_of_request(request).site >= Role.ADMIN.rank
