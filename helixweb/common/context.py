"""Template context that every page needs."""

from typing import Any

from django.http import HttpRequest

from helixweb.common.zones import zone_of

THEMES = ("light", "dark")
# Pages in the settings menu whose URLs have another prefix.
OF_SETTINGS = frozenset({"changes", "api"})


def shell(request: HttpRequest) -> dict[str, Any]:
    """The theme from its cookie ("": the system's), the open section, the time zone."""
    theme = request.COOKIES.get("theme", "")
    section = request.path.strip("/").split("/")[0] or "overview"
    return {
        "theme": theme if theme in THEMES else "",
        "section": "settings" if section in OF_SETTINGS else section,
        "zone": zone_of(request).key,
    }
