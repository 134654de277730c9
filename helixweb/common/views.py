"""Health, login by link, and how pages look."""

from django.contrib import messages
from django.contrib.auth import login
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.cache import cache_control, never_cache
from django.views.decorators.http import require_GET, require_http_methods
from django.views.i18n import JavaScriptCatalog

from helixweb.common import login_links
from helixweb.common.forms import PreferencesForm
from helixweb.common.pages import form_page

PREFERENCES = ("theme", "zone", "language")
KEPT_S = 365 * 86_400
TEXTS_KEPT_S = 600


@login_not_required
@never_cache
@require_GET
def healthz(request: HttpRequest) -> JsonResponse:
    """The process answers."""
    return JsonResponse({"status": "ok"})


# Texts of scripts in the reader's language; `?language=` separates languages in caches.
texts = cache_control(private=True, max_age=TEXTS_KEPT_S)(JavaScriptCatalog.as_view())


@login_not_required
@never_cache
@require_http_methods(["GET", "POST"])
def login_link(request: HttpRequest, token: str) -> HttpResponse:
    """GET shows one button, POST redeems: link previews must not use up a one-time link."""
    if request.method == "GET":
        return render(request, "registration/login_link.html", {"token": token})
    user = login_links.redeem(token)
    if user is None:
        return render(request, "registration/login_link.html", {"refused": True}, status=403)
    login(request, user, backend="django.contrib.auth.backends.ModelBackend")
    return redirect("overview")


@never_cache
def preferences(request: HttpRequest) -> HttpResponse:
    """Save a browser's preferences in cookies, so that pages use them from the first paint."""
    initial = {name: request.COOKIES.get(name, "") for name in PREFERENCES}
    form = PreferencesForm(request.POST if request.method == "POST" else None, initial=initial)
    if not form.is_valid():
        return form_page(request, "common/settings.html", form)
    messages.success(request, _("Kept in this browser."))
    answer = redirect("settings")
    for name in PREFERENCES:
        if value := form.cleaned_data[name]:
            answer.set_cookie(name, value, max_age=KEPT_S, samesite="Lax")
        else:
            answer.delete_cookie(name)
    return answer
