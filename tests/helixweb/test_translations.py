"""Pages in Simplified Chinese: what is marked is translated, for who asks for it."""

import re
from pathlib import Path

import pytest
from django.test import Client
from django.utils import translation

ROOT = Path(__file__).resolve().parents[2]
MARKED = re.compile(r'{%\s*translate\s+"([^"]+)"')
CATALOGUE = ROOT / "locale" / "zh_Hans" / "LC_MESSAGES" / "django.po"
ENTRY = re.compile(r'^msgid "(.+)"\nmsgstr "(.+)"$', re.MULTILINE)


def marked_texts() -> set[str]:
    pages = (ROOT / "templates").rglob("*.html")
    return {text for page in pages for text in MARKED.findall(page.read_text())}


def test_every_marked_text_has_a_translation_in_the_compiled_catalogue() -> None:
    entries = dict(ENTRY.findall(CATALOGUE.read_text()))
    assert marked_texts() <= set(entries)
    with translation.override("zh-hans"):
        stale = {text for text, said in entries.items() if translation.gettext(text) != said}
    assert not stale, f"compile the catalogue anew (msgfmt): {stale}"


@pytest.mark.parametrize("asked", ["", "xx", "zh-hans"])
def test_pages_speak_the_language_that_was_chosen(browser: Client, asked: str) -> None:
    browser.cookies["language"] = asked
    page = browser.get("/nodes/").content.decode()
    if asked == "zh-hans":
        assert '<html lang="zh-hans"' in page
        assert "<h1>节点</h1>" in page
    else:
        assert '<html lang="en"' in page
        assert "<h1>Nodes</h1>" in page


def test_a_language_is_kept_and_let_go_of_again(browser: Client) -> None:
    said = browser.post("/settings/", {"language": "zh-hans"}, follow=True).content.decode()
    assert "设置" in said
    said = browser.post("/settings/", {"language": ""}, follow=True).content.decode()
    assert "Settings" in said
