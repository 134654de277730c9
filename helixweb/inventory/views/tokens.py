"""Join tokens: which were made, which are used, and how to take one back."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache

from helixweb.access.needs import OPERATOR, VIEWER, needs
from helixweb.common.pages import list_page
from helixweb.inventory.models import JoinToken
from helixweb.inventory.services import joining


@needs(VIEWER)
@never_cache
def join_tokens(request: HttpRequest) -> HttpResponse:
    """The newest first; secrets are shown once, where they are made."""
    tokens = (
        JoinToken.objects.within(request).select_related("cluster", "created_by").order_by("-pk")
    )
    return list_page(request, "inventory/join_tokens.html", tokens, now=timezone.now())


@needs(change=OPERATOR, of=JoinToken)
def join_token_revoke(request: HttpRequest, pk: int) -> HttpResponse:
    """Let a token expire at once, used or not."""
    if joining.revoke_join_token(pk, now=timezone.now()):
        messages.success(request, _("The token is revoked."))
    else:
        messages.info(request, _("The token had expired already."))
    return redirect("join-tokens")
