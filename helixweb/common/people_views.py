"""The page of users: who may log in, and one-time links for others."""

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import get_user_model
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from helixweb.common import people
from helixweb.common.forms import InviteForm

USERS_PER_PAGE = 50


@never_cache
@require_http_methods(["GET", "POST"])
def users(request: HttpRequest) -> HttpResponse:
    """Everybody sees the list; an administrator's POST lets somebody in and shows the link once."""
    form, link = InviteForm(request.POST if request.method == "POST" else None), ""
    if request.method == "POST":
        _only_administrators(request)
    if form.is_valid():
        token = people.invite(form.cleaned_data["username"])
        link = f"{settings.HELIX_URL}{reverse('login-link', args=[token])}"
        form = InviteForm()
    keys = Count("apikey", filter=Q(apikey__revoked_at__isnull=True))
    rows = get_user_model().objects.annotate(num_keys=keys).order_by("username")
    page = Paginator(rows, USERS_PER_PAGE).get_page(request.GET.get("page"))
    context = {"form": form, "link": link, "page": page}
    return render(request, "common/users.html", context, status=422 if form.is_bound else 200)


@require_POST
def keep_out(request: HttpRequest, pk: int) -> HttpResponse:
    """End the user's sessions and API keys."""
    _only_administrators(request)
    user = get_object_or_404(get_user_model(), pk=pk)
    try:
        people.keep_out(user, by=request.user)
    except people.NotYourself as error:
        messages.error(request, str(error))
    else:
        messages.success(
            request, _("%(user)s is logged out and kept out.") % {"user": user.get_username()}
        )
    return redirect("users")


@require_POST
def let_in(request: HttpRequest, pk: int) -> HttpResponse:
    """Let the user log in again."""
    _only_administrators(request)
    user = get_object_or_404(get_user_model(), pk=pk)
    people.let_in(user)
    messages.success(request, _("%(user)s may log in again.") % {"user": user.get_username()})
    return redirect("users")


def _only_administrators(request: HttpRequest) -> None:
    if not request.user.is_superuser:
        raise PermissionDenied
