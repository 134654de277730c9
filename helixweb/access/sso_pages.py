"""The addresses of single sign-on; where it is not set up there is nothing at them."""

import logging

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import SuspiciousOperation
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from helixweb.access import audit

logger = logging.getLogger(__name__)


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
