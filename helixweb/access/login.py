"""Logging in with a password, and the addresses of single sign-on; where it is not set up there is
nothing at them."""

import logging
from typing import Any

from django import forms
from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView
from django.core.exceptions import SuspiciousOperation
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from helixweb.access import audit, guessing

logger = logging.getLogger(__name__)


class LoginForm(AuthenticationForm):
    """User name and password; after too many failures the client must wait."""

    def clean(self) -> dict[str, Any]:
        username = self.cleaned_data.get("username", "")
        if guessing.must_wait(self.request, username):
            raise forms.ValidationError(
                _(
                    "Too many failed attempts; try again in %(window_s)s minutes, or use a "
                    "one-time link."
                )
                % {"window_s": guessing.WINDOW_S // 60},
                code="too_many",
            )
        try:
            return super().clean()
        except forms.ValidationError:
            guessing.note_failure(self.request, username)
            raise


class PasswordLogin(LoginView):
    """The login page, with a button for single sign-on if that is configured."""

    authentication_form = LoginForm

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        sso = {
            "sso": settings.HELIX_OIDC_NAME if settings.HELIX_OIDC_ISSUER else "",
            "sso_trouble": self.request.GET.get("sso", ""),
        }
        return super().get_context_data(**kwargs, **sso)


@login_not_required
@never_cache
@require_GET
def begin(request: HttpRequest) -> HttpResponseBase:
    """Redirect to the provider, with a new state, nonce and challenge."""
    return _through("Begin", request)


@login_not_required
@never_cache
@require_GET
def callback(request: HttpRequest) -> HttpResponseBase:
    """Back from the provider, with a code that is good once."""
    return _through("Return", request)


def _through(view: str, request: HttpRequest) -> HttpResponseBase:
    if not settings.HELIX_OIDC_ISSUER:
        raise Http404
    import requests  # this and what `sso` needs is installed with the extra `sso` only

    from helixweb.access import sso

    try:
        response: HttpResponseBase = getattr(sso, view).as_view()(request)
    except (requests.RequestException, SuspiciousOperation, ValueError) as error:
        logger.warning("single sign-on: %s", error)
        audit.note_refusal("login", "single sign-on", text=str(error)[:200])
        return redirect(f"{reverse('login')}?sso=failed")
    return response
