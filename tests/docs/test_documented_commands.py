"""Every command of the documentation is run, or parsed by its program, or says why it is not.

A fence of language `console` stands below one of

    <!-- run -->              each `$` line is run in one world for all, and must end with 0
    <!-- run: NAME=value -->  the same with that in the environment
    <!-- parse -->            it stays, or dials elsewhere: its program's own parser must take it
    <!-- not run: REASON -->  one of REASONS, or the test that runs it

Lines without `$` are what must be among what is said; … stands for anything.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.command_lines import NotOurs, Wrong, check, check_mention, is_command
from tests.docs.console_world import World, console_world
from tests.docs.pages import ROOT, Block, blocks, inline_commands, pages
from tests.e2e import blank_database
from tests.installed import installed
from tests.made_once import made_once

REASONS = {
    "installs software",
    "needs a GPU",
    "needs Docker",
    "needs Kubernetes",
    "needs root",
    "needs minutes",
    "needs another machine",
}
ALL = [block for page in pages() for block in blocks(page)]
INLINE = [
    (page, line, text)
    for page in [*pages(), *sorted((ROOT / "benchmarks").rglob("README.md"))]
    for line, text in inline_commands(page)
    if is_command(text)
]
RUN = sorted({block.page for block in ALL if block.mark == "run"})


def of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    installed("curl")
    blank = made_once(tmp_path_factory, "blank-database", blank_database.make)
    with console_world(tmp_path_factory.mktemp("console"), blank / blank_database.NAME) as made:
        yield made


def test_every_fence_of_commands_says_how_it_is_tested() -> None:
    assert [block.where for block in ALL if block.mark is None] == []
    for page in pages():
        assert not [block.where for block in blocks(page, "bash")], "console, with $"
        assert not [block.where for block in blocks(page, "sh")], "console, with $"


def test_what_is_not_run_says_why_and_most_is_run() -> None:
    for block in ALL:
        if block.mark == "not run":
            assert block.commands, block.where
            other = re.fullmatch(r"(tests/[\w/]+\.py) does", block.note)
            assert block.note in REASONS or (other and (ROOT / other[1]).exists()), block.where
    assert sum(len(block.commands) for block in ALL if block.mark == "run") > 20


@pytest.mark.parametrize(
    "block", [block for block in ALL if block.mark != "run"], ids=lambda block: block.where
)
def test_a_command_that_is_not_run_is_parsed(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    for command in block.commands:
        try:
            check(command, patch=monkeypatch)
        except Wrong as error:
            if isinstance(error, NotOurs) and block.mark == "not run":
                continue
            pytest.fail(f"{block.where}: {command}\n{error}")


@pytest.mark.parametrize(
    ("page", "line", "command"),
    INLINE,
    ids=lambda value: value.name if isinstance(value, Path) else None,
)
def test_a_command_in_running_text_is_one_that_its_program_takes(
    page: Path, line: int, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        check_mention(command, patch=monkeypatch)
    except Wrong as error:
        pytest.fail(f"{of(page)}:{line}: {command}\n{error}")


@pytest.mark.processes
@pytest.mark.parametrize("page", RUN, ids=of)
def test_the_commands_of_a_page_do_what_it_says(page: Path, world: World) -> None:
    room = world.room(of(page).replace("/", "-"))
    for block in blocks(page):
        if block.mark != "run":
            continue
        env = dict([block.note.split("=", 1)]) if block.note else {}
        said = ""
        for command in block.commands:
            done = world.run(command, room=room, env=env)
            assert done.status == 0, f"{block.where}: {command}\n{done.said[-2000:]}"
            said += done.said
        for line in block.expected:
            assert re.search(line, said), f"{block.where} should say {line}\n{said[-2000:]}"
