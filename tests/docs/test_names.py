"""Files, tests and settings that the documentation names are there."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT, pages

FILE = re.compile(r"`((?:planner|runtime|helixweb|tests|benchmarks|docs|packaging)/[\w/.-]+)`")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


@cache
def _tests_of(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text())
    return frozenset(
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test")
    )


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_what_a_page_names_is_there(page: Path) -> None:
    text = page.read_text()
    gone = [name for name in FILE.findall(text) if not (ROOT / name).exists()]
    for path, test in TEST.findall(text):
        if not (ROOT / path).exists() or test not in _tests_of(ROOT / path):
            gone.append(f"{path}::{test}")
    assert not gone


def rows(page: str) -> list[list[str]]:
    """The cells of every table of the page, without heads."""
    found = []
    for line in (DOCS / page).read_text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if line.startswith("| ") and not set(line) <= set("|- "):
            found.append(cells)
    return found


def test_every_row_of_the_paper_map_names_a_file_and_a_test() -> None:
    mapped = [row for row in rows("paper-map.md") if row[0] != "§"]
    assert len(mapped) > 25
    for row in mapped:
        assert FILE.search(row[2]), row
        assert TEST.search(row[3]) or FILE.search(row[3]), row


def test_every_threat_has_a_test_that_attacks_it() -> None:
    threats = [row for row in rows("security/threat-model.md") if re.fullmatch(r"T\d+", row[0])]
    assert len(threats) > 50
    numbers = [row[0] for row in threats]
    assert numbers == [f"T{number}" for number in range(1, len(threats) + 1)]
    for row in threats:
        assert len(row) == 4, row
        assert TEST.search(row[3]), f"{row[0]} has no test"


def test_every_setting_of_the_environment_is_explained() -> None:
    told = (DOCS / "configuration.md").read_text()
    asked = re.findall(
        r'environment\.\w+\(\s*"([A-Z_]+)"',
        (ROOT / "helixweb" / "settings.py").read_text(),
    )
    assert len(asked) > 5
    assert [name for name in asked if f"`{name}`" not in told] == []
