"""What every page's shell needs."""

from typing import Any

from django.http import HttpRequest

THEMES = ("light", "dark")


def shell(request: HttpRequest) -> dict[str, Any]:
    """The theme from its cookie (none: as the system says) and the section that is open."""
    theme = request.COOKIES.get("theme", "")
    section = request.path.strip("/").split("/")[0] or "overview"
    return {"theme": theme if theme in THEMES else "", "section": section}
