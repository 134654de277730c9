"""People of the site: let in by a one-time link, and kept out again."""

from typing import Any

from django.contrib.auth import get_user_model
from django.db import transaction
from django.utils.translation import gettext as _

from helixweb.common import login_links
from helixweb.common.models import ApiKey


class NotYourself(Exception):
    """Nobody locks themselves out; the text says the remedy."""


def invite(username: str) -> str:
    """Make the user unless there is one, and the token of a one-time login link for them."""
    with transaction.atomic():
        user, _ = get_user_model().objects.get_or_create(username=username)
        return login_links.create(user)


def let_in(user: Any) -> None:
    """They may log in again; their API keys work again."""
    _set(user, is_active=True)


def keep_out(user: Any, *, by: Any) -> None:
    """Their sessions and API keys end at once; what they made stays. Raises NotYourself."""
    if user.pk == by.pk:
        raise NotYourself(_("You cannot deactivate yourself; ask another administrator."))
    _set(user, is_active=False)


def _set(user: Any, *, is_active: bool) -> None:
    with transaction.atomic():
        user.is_active = is_active
        user.save(update_fields=["is_active"])
        # Coordinators, which answer to keys, hear of a key when its row is saved.
        for key in ApiKey.objects.filter(user=user, revoked_at__isnull=True):
            key.save(update_fields=["revoked_at"])
