"""Hostile YAML is refused by its line, or read in linear time."""

import math
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.document import parse_document
from planner.domain.errors import InvalidProblem
from planner.yaml_reader import MOST_LEVELS, MOST_VALUES

DOUBLED = 40
LISTS = "a0: &a0 [x]\n" + "".join(
    f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, DOUBLED)
)


def read(text: str) -> object:
    return parse_document(text, name_hint="x.yaml")


@pytest.mark.parametrize(
    "text",
    [
        '!!int ""', '!!float ""', '!!int "_"', '!!int "-"', '!!bool "x"', '!!timestamp "x"',
        "!!set [1]",
        "!!map [1]", "!!seq {a: 1}", "!!omap [a]", "!!binary x", "!own x", "? [1]\n: 2",
        "? {a: 1}\n: 2", "1: x", "a: &a [*a]", "a: *b", "--- 1\n--- 2", "a: \ud800", "a: \x00",
        "!!python/name:os.system x", "%YAML 9.9\n---\na", "a: " + "9" * 5000, "0x" + "f" * 5000,
    ],
)  # fmt: skip
def test_what_no_document_says_is_refused_and_breaks_nothing(text: str) -> None:
    with pytest.raises(InvalidProblem, match="not valid YAML") as refused:
        read(text)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (LISTS, "aliases"),
        ("".join(f"k{n}: {n}\n" for n in range(MOST_VALUES // 2 + 1)), "write it as JSON"),
        ("[" * (MOST_LEVELS + 1), "nested too deeply"),
        ("- " * (MOST_LEVELS + 1), "nested too deeply"),
    ],
    ids=["aliases", "keys", "flow", "block"],
)
def test_a_document_beyond_the_limits_is_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidProblem, match=said):
        read(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1:30", "1:30"), ("1:1:1.5", "1:1:1.5"), ("190:20:30", "190:20:30"),
        ("2026-01-01", "2026-01-01"), ("yes", "yes"), ("off", "off"), ("1_000", "1_000"),
        ("010", 10), ("0o10", 8), ("0x10", 16), ("1.25e9", 1.25e9), ("+1", 1), ("-.5", -0.5),
        ("1.", 1.0), ("TRUE", True), ("false", False), ("~", None), ("", None), ('"1"', "1"),
        ("-.inf", -math.inf), ("!!str 5", "5"), ("! 5", "5"), ("!!int 5", 5), ("!!float 5", 5.0),
    ],
)  # fmt: skip
def test_scalars_are_those_of_yaml_1_2(text: str, value: object) -> None:
    found = read(text)
    assert (type(found), found) == (type(value), value)


def test_an_alias_is_what_it_stands_for() -> None:
    assert read("a: &a [1, {b: 2}]\nc: *a\n") == {"a": [1, {"b": 2}], "c": [1, {"b": 2}]}


@given(st.text(alphabet="ab:-[]{}#&*!|>'\"%@`?,.0123_e~\n\t \\\x85\ufeff", max_size=40))
def test_no_text_does_anything_but_be_read_or_refused(text: str) -> None:
    with suppress(InvalidProblem):
        read(text)
