"""Slows down the guessing of passwords: failures are counted by address and by user name.

They are counted in the database, so that all web processes count together and a restart forgets
nothing. One-time links and single sign-on work all the same: they cannot be guessed here.
"""

import ipaddress
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F
from django.utils import timezone

from helixweb.access import audit
from helixweb.common.addresses import address_of, parsed_address
from helixweb.common.auth import sha256_hex
from helixweb.common.models import FailedLogins

WINDOW_S = 300
FAILURES_OF_ADDRESS = 20
NETWORK_BITS = 64  # of IPv6, as providers give them to a household
# More than an address may have, so that an attacker does not lock out a user too easily.
FAILURES_OF_NAME = 60
# Attempts of administrators of single clusters: they may give roles by name but not list users.
UNKNOWN_NAMES_OF_USER = 5


def must_wait(request: Any, username: str) -> bool:
    """Whether the address or the name has failed too often of late."""
    most = dict(_counters(request, username))
    rows = FailedLogins.objects.filter(counted__in=most, since__gt=_oldest(timezone.now()))
    too_many = any(row.failures >= most[row.counted] for row in rows)
    if too_many:
        audit.note_refusal("login", username, text="too many failed attempts")
    return too_many


def note_failure(request: Any, username: str) -> None:
    """Count one, from the first for `WINDOW_S`."""
    for counted, _ in _counters(request, username):
        _count(counted)
    audit.note_refusal("login", username, text="wrong user name or password")


def must_stop_naming(user: Any) -> bool:
    """True if the user has recently entered too many names of unknown users."""
    rows = FailedLogins.objects.filter(counted=_naming(user), since__gt=_oldest(timezone.now()))
    return any(row.failures >= UNKNOWN_NAMES_OF_USER for row in rows)


def note_unknown_name(user: Any, name: str) -> None:
    """Count a name given by `user` that no user or group has."""
    _count(_naming(user))
    audit.note_refusal("grant", name, text="no user and no group has this name")


def _naming(user: Any) -> str:
    return f"naming:{user.pk}"


def _count(counted: str) -> None:
    now = timezone.now()
    row, is_new = FailedLogins.objects.get_or_create(
        counted=counted, defaults={"failures": 1, "since": now}
    )
    if is_new:
        return
    same = FailedLogins.objects.filter(pk=row.pk, since__gt=_oldest(now))
    if not same.update(failures=F("failures") + 1):
        FailedLogins.objects.filter(pk=row.pk).update(failures=1, since=now)


def forget_failures(now: datetime) -> None:
    """Delete failures that are too old to count."""
    FailedLogins.objects.filter(since__lte=_oldest(now)).delete()


def _oldest(now: datetime) -> datetime:
    return now - timedelta(seconds=WINDOW_S)


def _whose(address: str) -> str:
    """The key to count an address by: for IPv6 its network, as a client has a whole network."""
    found = parsed_address(address)
    if isinstance(found, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((found, NETWORK_BITS), strict=False))
    return address if found is None else str(found)


def _counters(request: Any, username: str) -> list[tuple[str, int]]:
    return [
        (f"address:{_whose(address_of(request))}", FAILURES_OF_ADDRESS),
        (f"name:{sha256_hex(username.lower())}", FAILURES_OF_NAME),
    ]
