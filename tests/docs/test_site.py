"""The documentation is built without a warning, fetches nothing, and its drawings are made."""

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from docs.figures.__main__ import drawn, names
from tests.docs.pages import DOCS, ROOT, pages
from tests.helixweb.looking import elements

# What a browser would fetch by itself; links are for people to follow.
FETCHED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
PICTURES = re.compile(r"!\[([^\]]*)\]\(([^)]+)\)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built strictly, as `make docs` does."""
    folder = tmp_path_factory.mktemp("site")
    command = [
        sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html", "-d", str(folder / "doctrees"),
        str(DOCS), str(folder / "html"),
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder / "html"


@pytest.mark.processes
def test_showing_a_page_fetches_nothing_from_elsewhere(site: Path) -> None:
    seen = 0
    for page in site.rglob("*.html"):
        fetched = (given.get(FETCHED.get(tag, "")) for tag, given in elements(page.read_text()))
        for address in filter(None, fetched):
            seen += 1
            assert not urlsplit(address).netloc, f"{page.name} fetches {address}"
            assert (page.parent / urlsplit(address).path).exists(), f"{page.name}: {address}"
    assert seen > 100
    for style in site.rglob("*.css"):
        assert not re.search(r"@import|url\(\s*['\"]?(https?:)?//", style.read_text()), style


@pytest.mark.processes
def test_every_written_page_can_be_reached(site: Path) -> None:
    for page in pages():
        if DOCS not in page.parents:
            continue
        built = site / page.relative_to(DOCS).with_suffix(".html")
        assert built.exists(), page


@pytest.mark.parametrize("name", names())
def test_a_drawing_is_what_its_script_draws(name: str) -> None:
    assert (DOCS / "figures" / f"{name}.svg").read_text() == drawn(name), (
        "draw it again: python -m docs.figures"
    )


def test_every_picture_has_words_for_who_does_not_see_it_and_a_script_that_makes_it() -> None:
    captured = (DOCS / "gallery" / "capture.py").read_text()
    shown = set()
    for page in pages():
        for words, address in PICTURES.findall(page.read_text()):
            path = (page.parent / address).resolve()
            shown.add(path)
            assert len(words) > 10, f"{page}: {address} has no description"
            if path.suffix == ".svg":
                assert path.with_suffix(".py").exists(), path
            else:
                assert f'"{path.stem}"' in captured, f"no script takes {path.name}"
    kept = {path for kind in ("*.svg", "*.webp", "*.png") for path in DOCS.rglob(kind)}
    assert {path for path in kept if "_build" not in path.parts} == shown, "a picture nobody sees"
