"""Active sessions: users list and end their own, and old ones end by themselves.

A session ends after `SESSION_COOKIE_AGE` without a request, and in any case
`HELIX_SESSION_MAX_AGE_S` after the log-in.
"""

import time
from typing import Any

from django.conf import settings
from django.contrib.auth import logout
from django.contrib.auth.signals import user_logged_in, user_logged_out
from django.contrib.sessions.models import Session
from django.db.models import QuerySet
from django.dispatch import receiver
from django.http import HttpRequest

from helixweb.access import audit
from helixweb.access.roles_of_holders import end_streams
from helixweb.common.addresses import address_of
from helixweb.common.models import SessionOfUser

BEGAN = "helix_began"
SEEN = "helix_seen"
# How often the time of the last request is written into a session.
SEEN_EVERY_S = 300


def own_sessions(user: Any) -> QuerySet[SessionOfUser]:
    """The user's active sessions, newest first."""
    alive = Session.objects.values("session_key")
    rows = SessionOfUser.objects.filter(user=user, session_key__in=alive)
    return rows.order_by("-pk")


def end(row: SessionOfUser) -> None:
    """End a log-in; its user must log in again."""
    Session.objects.filter(session_key=row.session_key).delete()
    row.delete()
    end_streams([row.user_id])


def end_all(user: Any, *, but: str | None = None) -> int:
    """End all sessions of the user except the one with the key `but`; returns how many."""
    rows = SessionOfUser.objects.filter(user=user).exclude(session_key=but or "")
    keys = list(rows.values_list("session_key", flat=True))
    Session.objects.filter(session_key__in=keys).delete()
    rows.delete()
    end_streams([user.pk])
    audit.note("session", user.get_username(), "removed", text="logged out everywhere")
    return len(keys)


def keep_within_time(request: HttpRequest) -> None:
    """End a session that is too old; store about every five minutes that it is in use."""
    session, now = request.session, int(time.time())
    began, seen = session.get(BEGAN, now), session.get(SEEN, 0)
    if now - began > settings.HELIX_SESSION_MAX_AGE_S:
        logout(request)
    elif now - seen > SEEN_EVERY_S:
        session[SEEN] = now
        session.setdefault(BEGAN, now)


def forget_ended() -> None:
    """Delete the rows of sessions that no longer exist."""
    SessionOfUser.objects.exclude(session_key__in=Session.objects.values("session_key")).delete()


@receiver(user_logged_in, dispatch_uid="access-session-began")
def _began(sender: Any, request: HttpRequest, user: Any, **signal: Any) -> None:
    """Django has given the session a new key by now."""
    now = int(time.time())
    request.session[BEGAN] = request.session[SEEN] = now
    if request.session.session_key is None:
        request.session.save()
    SessionOfUser.objects.update_or_create(
        session_key=request.session.session_key,
        defaults={
            "user": user,
            "address": address_of(request),
            "browser": request.headers.get("User-Agent", "")[:200],
        },
    )
    audit.note("login", user.get_username(), "noted", row_id=user.pk, text="logged in")


@receiver(user_logged_out, dispatch_uid="access-session-ended")
def _ended(sender: Any, request: HttpRequest, user: Any, **signal: Any) -> None:
    if user is not None and request.session.session_key is not None:
        SessionOfUser.objects.filter(session_key=request.session.session_key).delete()
        audit.note("login", user.get_username(), "noted", row_id=user.pk, text="logged out")
        end_streams([user.pk])  # those of other sessions reconnect
