"""Decisions are cited by their numbers."""

from collections import Counter
from pathlib import Path

DECISIONS = Path(__file__).resolve().parents[2] / "docs" / "decisions"


def test_each_decision_has_a_number_of_its_own() -> None:
    numbers = Counter(path.name[:4] for path in DECISIONS.glob("[0-9]*.md"))
    assert numbers
    assert not {number: count for number, count in numbers.items() if count > 1}


def test_each_decision_is_headed_by_its_number() -> None:
    for path in DECISIONS.glob("[0-9]*.md"):
        assert path.read_text().startswith(f"# {path.name[:4]} "), path.name
