"""Pages of groups, and of who has roles on one cluster."""

from django.apps import apps
from django.contrib import messages
from django.contrib.auth.models import Group
from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache

from helixweb.access import roles_of_holders
from helixweb.access.forms import ClusterGrantForm, GrantForm, GroupForm
from helixweb.access.models import Grant
from helixweb.access.needs import ADMIN, SITE_ADMIN, SITE_VIEWER, VIEWER, needs
from helixweb.access.people_pages import governs_site
from helixweb.access.rights import rights_of_request
from helixweb.access.roles import Role
from helixweb.common.pages import form_page


@never_cache
@needs(SITE_VIEWER, SITE_ADMIN)
def groups(request: HttpRequest) -> HttpResponse:
    """All of them; an administrator's POST makes one."""
    form = GroupForm(request.POST if request.method == "POST" else None)
    if form.is_valid():
        made = roles_of_holders.make_group(form.cleaned_data["name"])
        roles_of_holders.set_members(made, form.cleaned_data["members"])
        return redirect("group", pk=made.pk)
    rows = Group.objects.annotate(num_members=Count("user", distinct=True))
    shown = rows.prefetch_related("grants__cluster").order_by("name")
    governs = governs_site(request)
    return form_page(request, "access/groups.html", form, groups=shown, governs=governs)


@never_cache
@needs(SITE_VIEWER, SITE_ADMIN)
def group(request: HttpRequest, pk: int) -> HttpResponse:
    """Its roles and members; a POST gives a role, or says who is in it."""
    row = get_object_or_404(Group, pk=pk)
    sent = request.POST if request.method == "POST" else None
    is_role = sent is not None and "role" in sent
    grant_form = GrantForm(sent if is_role else None, scope=request)
    names = "\n".join(sorted(user.get_username() for user in row.user_set.all()))
    members_form = GroupForm(None if is_role else sent, group=row, initial={"members": names})
    if grant_form.is_valid():
        given = grant_form.cleaned_data
        roles_of_holders.give(row, Role(given["role"]), cluster=given["cluster"])
        messages.success(request, _("The role is given."))
        return redirect("group", pk=pk)
    if members_form.is_valid():
        roles_of_holders.set_members(row, members_form.cleaned_data["members"])
        messages.success(request, _("The members are kept."))
        return redirect("group", pk=pk)
    context = {
        "row": row,
        "form": grant_form,
        "members_form": members_form,
        "members": row.user_set.order_by("username"),
        "grants": row.grants.select_related("cluster"),
        "governs": governs_site(request),
    }
    status = 422 if sent is not None else 200
    return render(request, "access/group.html", context, status=status)


@needs(change=SITE_ADMIN)
def group_delete(request: HttpRequest, pk: int) -> HttpResponse:
    """With the roles it gave."""
    row = get_object_or_404(Group, pk=pk)
    roles_of_holders.delete_group(row)
    messages.success(request, _("Group %(name)s is deleted.") % {"name": row.name})
    return redirect("groups")


@never_cache
@needs(VIEWER, ADMIN, of="inventory.Cluster")
def cluster_access(request: HttpRequest, pk: int) -> HttpResponse:
    """Who has a role on the cluster; a POST of one of its administrators gives one."""
    cluster = get_object_or_404(apps.get_model("inventory.Cluster").objects.within(request), pk=pk)
    form = ClusterGrantForm(request.POST if request.method == "POST" else None)
    if form.is_valid():
        given = form.cleaned_data
        roles_of_holders.give(given["name"], Role(given["role"]), cluster=cluster)
        messages.success(request, _("The role is given."))
        return redirect("cluster-access", pk=pk)
    return form_page(
        request,
        "access/cluster_access.html",
        form,
        cluster=cluster,
        grants=Grant.objects.select_related("user", "group").filter(cluster=cluster),
        governs=rights_of_request(request).on(pk) >= Role.ADMIN.rank,
    )
