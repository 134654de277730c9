"""The reader's time zone: chosen on the settings page, else the browser's, else UTC."""

from functools import cache
from zoneinfo import ZoneInfo, available_timezones

from django.http import HttpRequest

CHOSEN = "zone"
OF_BROWSER = "browser_zone"


def zone_of(request: HttpRequest) -> ZoneInfo:
    """Time zone from the cookies of the settings page and shell.js; unknown zones are ignored."""
    for cookie in (CHOSEN, OF_BROWSER):
        name = request.COOKIES.get(cookie, "")
        if name in _known_names():
            return ZoneInfo(name)
    return ZoneInfo("UTC")


def zone_names() -> list[str]:
    """Regions and cities, and UTC; not the many other names of the same."""
    return ["UTC", *sorted(name for name in _known_names() if _is_place(name))]


@cache
def _known_names() -> frozenset[str]:
    """Read once: the names are files, and to look for them all takes longer than most pages."""
    return frozenset(available_timezones())


def _is_place(name: str) -> bool:
    return "/" in name and not name.startswith(("Etc/", "SystemV/", "posix/", "right/", "US/"))
