"""People of the site: let in by a one-time link, given roles, and kept out again."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.contrib.auth import get_user_model
from django.db import transaction
from django.db.models.signals import post_save
from django.urls import reverse
from django.utils.translation import gettext as _

from helixweb.access import audit, roles_of_holders, sessions
from helixweb.access.roles import Role
from helixweb.common import login_links


class NotYourself(Exception):
    """Nobody locks themselves out; the text says the remedy."""


def invite(username: str, *, role: Role | None = None) -> str:
    """The token of a one-time login link for the user, made unless there is one.

    `role`, on the site, is given to somebody new only: a link for who forgot it changes nothing.
    """
    with transaction.atomic():
        user, is_new = get_user_model().objects.get_or_create(username=username)
        if is_new:
            audit.note_row(user, "added")
            if role is not None:
                roles_of_holders.give(user, role)
        return login_token(user)


def login_token(user: Any) -> str:
    """Of a one-time login link."""
    with transaction.atomic():
        audit.note_row(user, "noted", text="login link made")
        return login_links.create(user)


def login_path(token: str) -> str:
    """Where that link is. It is found without the other pages, which commands do not load."""
    return reverse("login-link", args=[token], urlconf="helixweb.common.urls")


def administrator(username: str) -> Any:
    """The user of that name; a new one is an administrator of the site."""
    rights = {"is_staff": True, "is_superuser": True}
    with transaction.atomic():
        user, is_new = get_user_model().objects.get_or_create(username=username, defaults=rights)
        if is_new:
            audit.note_row(user, "added", after={"is_superuser": True})
    return user


@contextmanager
def telling_of_users() -> Iterator[None]:
    """Within, users that are saved, as by commands of Django, are logged."""

    def tell(sender: Any, instance: Any, created: bool, **signal: Any) -> None:
        after = {"is_superuser": instance.is_superuser} if created else None
        audit.note_row(instance, "added" if created else "changed", after=after)

    users = get_user_model()
    post_save.connect(tell, sender=users, weak=False)
    try:
        yield
    finally:
        post_save.disconnect(tell, sender=users)


def let_in(user: Any) -> None:
    """They may log in again; their API keys work again."""
    _set(user, is_active=True)


def keep_out(user: Any, *, by: Any) -> None:
    """Their sessions and API keys end at once; what they made stays. Raises NotYourself."""
    if user.pk == by.pk:
        raise NotYourself(_("You cannot deactivate yourself; ask another administrator."))
    _set(user, is_active=False)
    sessions.end_all(user)


def _set(user: Any, *, is_active: bool) -> None:
    with transaction.atomic():
        before = {"is_active": user.is_active}
        user.is_active = is_active
        user.save(update_fields=["is_active"])
        audit.note_row(user, "changed", before=before, after={"is_active": is_active})
        roles_of_holders.tell_changed([user.pk])
