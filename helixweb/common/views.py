"""Health, event stream, login by link, preferences and API keys of the person logged in."""

from django.contrib import messages
from django.contrib.auth import login
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.cache import cache_control, never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_POST
from django.views.i18n import JavaScriptCatalog

from helixweb.common import auth, login_links
from helixweb.common.forms import ApiKeyForm, PreferencesForm
from helixweb.common.models import ApiKey
from helixweb.common.sse import event_stream

PREFERENCES = ("theme", "zone", "language")
KEPT_S = 365 * 86_400
TEXTS_KEPT_S = 600
PROCESS_TOPICS = ("agent:", "coordinator:")


@login_not_required
@never_cache
@require_GET
def healthz(request: HttpRequest) -> JsonResponse:
    """The process answers."""
    return JsonResponse({"status": "ok"})


@require_GET
def events(request: HttpRequest) -> HttpResponseBase:
    """`?topics=a,b`: one stream a page."""
    topics = [word for word in request.GET.get("topics", "").split(",") if word]
    if not topics or any(topic.startswith(PROCESS_TOPICS) for topic in topics):
        return HttpResponse("Name the topics of pages: ?topics=cluster:1,plan-run:2", status=400)
    return event_stream(request, topics)


# What scripts say, in the reader's language; `?language=` makes a page of another one ask anew.
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
@require_http_methods(["GET", "POST"])
def preferences(request: HttpRequest) -> HttpResponse:
    """How pages look in this browser; kept in cookies, so that pages come right at once."""
    initial = {name: request.COOKIES.get(name, "") for name in PREFERENCES}
    form = PreferencesForm(request.POST if request.method == "POST" else None, initial=initial)
    if not form.is_valid():
        status = 422 if form.is_bound else 200
        return render(request, "common/settings.html", {"form": form}, status=status)
    messages.success(request, _("Kept in this browser."))
    answer = redirect("settings")
    for name in PREFERENCES:
        if value := form.cleaned_data[name]:
            answer.set_cookie(name, value, max_age=KEPT_S, samesite="Lax")
        else:
            answer.delete_cookie(name)
    return answer


@never_cache
@require_http_methods(["GET", "POST"])
def api_keys(request: HttpRequest) -> HttpResponse:
    """List one's keys; POST creates one and shows its secret this once."""
    form, secret = ApiKeyForm(request.POST if request.method == "POST" else None), None
    if form.is_valid():
        secret = auth.create_api_key(user=request.user, **form.cleaned_data).secret
        form = ApiKeyForm()
    keys = ApiKey.objects.filter(user=request.user).order_by("-created_at")  # type: ignore[misc]
    context = {"form": form, "keys": keys, "secret": secret, "now": timezone.now()}
    status = 422 if form.is_bound else 200
    return render(request, "common/api_keys.html", context, status=status)


@require_POST
def revoke_api_key(request: HttpRequest, pk: int) -> HttpResponse:
    """End one of one's own keys."""
    key = get_object_or_404(ApiKey, pk=pk, user=request.user)
    if key.revoked_at is None:
        key.revoked_at = timezone.now()
        key.save(update_fields=["revoked_at"])  # not update(): whoever listens to saves must hear
    messages.success(request, _("The key %(name)s is revoked.") % {"name": key.name})
    return redirect("api-keys")
