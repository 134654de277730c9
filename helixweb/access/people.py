"""People of the site: let in by a one-time link, given roles, and kept out again."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.db import transaction
from django.db.models.signals import post_save
from django.urls import reverse
from django.utils.translation import gettext as _

from helixweb.access import audit, roles_of_holders, sessions
from helixweb.common import login_links
from helixweb.common.refusals import Conflict


def invite(username: str, *, role: str | None = None) -> str:
    """The URL of a one-time login link for the user, who is created if unknown.

    `role`, on the site, is given to a new user only; empty: none.
    """
    with transaction.atomic():
        user, is_new = get_user_model().objects.get_or_create(username=username)
        if is_new:
            audit.note_row(user, "added")
            if role:
                roles_of_holders.give(user, role)
        return f"{settings.HELIX_URL}{login_path(user)}"


def login_path(user: Any) -> str:
    """The path of a new one-time login link.

    It is found without the other pages, which commands do not load.
    """
    with transaction.atomic():
        audit.note_row(user, "noted", text="login link made")
        token = login_links.create(user)
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


def set_active(user: Any, *, is_active: bool, by: Any) -> None:
    """Let the user log in again, or end their sessions and API keys at once; what they made stays.

    Raises Conflict where they would lock themselves out.
    """
    if not is_active and user.pk == by.pk:
        raise Conflict(_("You cannot deactivate yourself; ask another administrator."))
    with transaction.atomic():
        before = {"is_active": user.is_active}
        user.is_active = is_active
        user.save(update_fields=["is_active"])
        audit.note_row(user, "changed", before=before, after={"is_active": is_active})
        roles_of_holders.tell_changed([user.pk])
        if not is_active:
            sessions.end_all(user)
