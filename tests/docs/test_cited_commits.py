"""Commits that the documentation and the benchmarks cite exist in the history."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, pages

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
