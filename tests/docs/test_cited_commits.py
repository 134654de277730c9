"""Commits, files, tests, settings and decisions that the documentation cites are there."""

import ast
import re
import subprocess
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT, pages

CITED = re.compile(r"\b(?=[0-9a-f]*[a-f])(?=[0-9a-f]*[0-9])[0-9a-f]{7,12}\b(?!-)")


def _git(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)


def _cited() -> dict[str, Path]:
    written = [*pages(), *sorted((ROOT / "benchmarks").rglob("*.md")), ROOT / "CHANGELOG.md"]
    return {commit: page for page in written for commit in CITED.findall(page.read_text())}


def test_every_cited_commit_is_in_the_history() -> None:
    if _git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        pytest.skip("needs a clone with its whole history")
    cited = _cited()
    assert len(cited) > 10
    gone = {
        commit: str(page.relative_to(ROOT))
        for commit, page in cited.items()
        if _git("merge-base", "--is-ancestor", commit, "HEAD").returncode != 0
    }
    assert not gone


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


DECISIONS = Path(__file__).resolve().parents[2] / "docs" / "decisions"


def test_each_decision_has_a_number_of_its_own() -> None:
    numbers = Counter(path.name[:4] for path in DECISIONS.glob("[0-9]*.md"))
    assert numbers
    assert not {number: count for number, count in numbers.items() if count > 1}


def test_each_decision_is_headed_by_its_number() -> None:
    for path in DECISIONS.glob("[0-9]*.md"):
        assert path.read_text().startswith(f"# {path.name[:4]} "), path.name
