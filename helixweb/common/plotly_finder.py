"""Serves plotly.min.js out of the installed `plotly` package, and nothing else of it."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import plotly
from django.contrib.staticfiles.finders import BaseFinder
from django.core.files.storage import FileSystemStorage

NAME = "plotly.min.js"
FOLDER = Path(plotly.__file__).parent / "package_data"


@cache
def map_style_id() -> str:
    """The id of the style element that plotly.min.js adds for maps when it loads, if there is none.

    Only one that is there already, with the page's nonce, passes the content security policy.
    """
    added = re.search(
        r'if\(!document\.getElementById\("(\w+)"\)\)\{var (\w+)=document\.createElement\("style"\)',
        (FOLDER / NAME).read_text(),
    )
    return added[1] if added else ""


class PlotlyFinder(BaseFinder):
    """Finds exactly `plotly.min.js`."""

    storage = FileSystemStorage(location=FOLDER)

    def check(self, **kwargs: Any) -> list[Any]:
        return []

    def find(self, path: str, find_all: bool = False, **kwargs: Any) -> Any:
        found = [str(FOLDER / NAME)] if path == NAME else []
        if find_all:
            return found
        return found[0] if found else None

    def list(self, ignore_patterns: Any) -> Iterator[tuple[str, FileSystemStorage]]:
        yield NAME, self.storage
