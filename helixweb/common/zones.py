"""The reader's time zone: chosen on the settings page, else the browser's, else UTC."""

from zoneinfo import ZoneInfo, available_timezones

from django.http import HttpRequest

CHOSEN = "zone"
OF_BROWSER = "browser_zone"


def zone_of(request: HttpRequest) -> ZoneInfo:
    """From the cookies that the settings page and shell.js write; what is no zone is ignored."""
    for cookie in (CHOSEN, OF_BROWSER):
        name = request.COOKIES.get(cookie, "")
        if name in available_timezones():
            return ZoneInfo(name)
    return ZoneInfo("UTC")


def zone_names() -> list[str]:
    """Regions and cities, and UTC; not the many other names of the same."""
    return ["UTC", *sorted(name for name in available_timezones() if _is_place(name))]


def _is_place(name: str) -> bool:
    return "/" in name and not name.startswith(("Etc/", "SystemV/", "posix/", "right/", "US/"))
