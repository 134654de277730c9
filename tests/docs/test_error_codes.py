"""Each code with which the product refuses something stands in the page that explains them."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from django.urls import get_resolver
from rest_framework import exceptions

from helixweb.command_line.exit_codes import MEANINGS
from helixweb.common.problems import status_of
from helixweb.common.refusals import Refused
from runtime.coordinator.refusals import NACKS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
EXPLAINED = set(re.findall(r"`([a-z_]+)`", PAGE))
PACKAGES = ("helixweb", "runtime")


def constants(node: ast.expr) -> Iterator[str]:
    """What the expression may be, as far as it is written there."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from constants(node.body)
        yield from constants(node.orelse)


def codes_of(tree: ast.AST) -> Iterator[str]:
    """Of `code="…"` in calls and `default_code = "…"` in classes."""
    for node in ast.walk(tree):
        if (isinstance(node, ast.keyword) and node.arg == "code") or (
            isinstance(node, ast.Assign)
            and any(
                isinstance(target, ast.Name) and target.id == "default_code"
                for target in node.targets
            )
        ):
            yield from constants(node.value)


@cache
def collected() -> dict[str, str]:
    """Every code, and a file that gives it."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for code in codes_of(ast.parse(path.read_text())):
                found[code] = str(path.relative_to(ROOT))
    found |= {code: "runtime/coordinator/refusals.py" for code, _ in NACKS.values()}
    for kind in vars(exceptions).values():
        if isinstance(kind, type) and issubclass(kind, exceptions.APIException):
            found.setdefault(kind.default_code, "rest_framework/exceptions.py")
    return found


def test_the_collection_finds_what_it_shall() -> None:
    found = collected()
    assert {"name_taken", "queue_full", "invalid_type", "no_kv_pages", "throttled"} <= set(found)


def test_every_error_code_is_explained() -> None:
    missing = {code: path for code, path in collected().items() if code not in EXPLAINED}
    assert not missing, "explain these in docs/troubleshooting.md"


def kinds(root: type[Any]) -> Iterator[type[Any]]:
    yield root
    for kind in root.__subclasses__():
        yield from kinds(kind)


def test_the_status_beside_a_rest_code_is_its_own() -> None:
    get_resolver().url_patterns  # noqa: B018 - imports whatever raises one
    section = PAGE.split("## REST API")[1].split("\n## ")[0]
    told = dict(re.findall(r"^\| `([a-z_]+)` \| (\d+) \|", section, flags=re.MULTILINE))
    statuses = {
        kind.default_code: kind.status_code
        for kind in kinds(exceptions.APIException)
        if kind.__module__.startswith(("helixweb.", "rest_framework."))  # no test's own
    } | {kind.default_code: status_of(kind) for kind in kinds(Refused)}
    assert {code: int(status) for code, status in told.items()} == {
        code: statuses[code] for code in told
    }


def test_every_exit_status_is_explained_in_its_own_words() -> None:
    rows = dict(re.findall(r"^\| (\d+) \| (.+) \|$", PAGE, flags=re.MULTILINE))
    told = {int(status): words.replace("`", "") for status, words in rows.items()}
    assert set(told) == set(MEANINGS)


def test_nothing_is_explained_that_no_code_says() -> None:
    tables = re.findall(r"^\| ((?:`[a-z_]+`(?:, )?)+) \|", PAGE, flags=re.MULTILINE)
    named = {code for cell in tables for code in re.findall(r"`([a-z_]+)`", cell)}
    assert named <= set(collected())
