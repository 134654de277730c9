"""Logging in with a password."""

from typing import Any

from django import forms
from django.conf import settings
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView
from django.utils.translation import gettext_lazy as _

from helixweb.access import guessing


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
