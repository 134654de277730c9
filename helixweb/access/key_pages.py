"""One's own API keys, and one's own log-ins."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache

from helixweb.access import keys, sessions
from helixweb.access.forms import ApiKeyForm
from helixweb.access.needs import OWN, needs
from helixweb.common.models import ApiKey, SessionOfUser
from helixweb.common.pages import form_page


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


@never_cache
@needs(OWN)
def log_ins(request: HttpRequest) -> HttpResponse:
    """Where one is logged in."""
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
