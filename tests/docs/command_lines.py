"""Whether a command line of the documentation is one that its program takes, without running it."""

import argparse
import importlib
import importlib.util
import re
import runpy
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


class Parsed(Exception):
    """The parser has taken it; nothing may happen after."""


class Wrong(Exception):
    """The command is none; the text says what is wrong with it."""


class NotOurs(Wrong):
    """Nobody here knows that program."""


@contextmanager
def only_parsing(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """argparse raises Parsed instead of giving what it parsed."""
    original = argparse.ArgumentParser.parse_known_args
    depth = 0

    def parse(parser: argparse.ArgumentParser, *args: Any, **options: Any) -> Any:
        nonlocal depth
        depth += 1
        try:
            found = original(parser, *args, **options)
        finally:
            depth -= 1
        if depth:  # a subparser of the one that was asked
            return found
        if found[1]:
            parser.error(f"unrecognized arguments: {' '.join(found[1])}")
        raise Parsed

    with patch.context() as here:
        here.setattr(argparse.ArgumentParser, "parse_known_args", parse)
        yield


def is_command(text: str) -> bool:
    """True for a program of ours with words after it; a program's name alone is a mention."""
    words = text.split()
    while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
        words.pop(0)
    return len(words) > 1 and words[0] in PROGRAMS and not {"…", ">"} & set(words)


def without_notation(command: str) -> str:
    """A command with optional parts written out, the first of each choice taken, and a number where
    the usage names one: `[--rings pcie|nvlink] [--seeds N ...]` is `--rings pcie --seeds 1`."""
    plain = re.sub(r"[\[\]]| \.\.\.", "", command)
    plain = re.sub(r"([\w-]+)(?:\|[\w-]+)+", r"\1", plain)
    return re.sub(r"(?<= )[NS](?= |$)", "1", plain)


def check_mention(command: str, *, patch: pytest.MonkeyPatch) -> None:
    """Raises Wrong. Like `check`; but for a command of ours without any option, such as
    `helixweb backup`, it is enough that there is one of that name. A benchmark must be complete."""
    command = without_notation(command).partition(" | ")[0]
    short = " -" not in command.replace(" -m ", " ") and "benchmarks" not in command
    check(f"{command} --help" if short and not command.startswith("make") else command, patch=patch)


def check(command: str, *, patch: pytest.MonkeyPatch) -> None:
    """Raises Wrong."""
    words = shlex.split(command)
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words.pop(0)
    for begin, checker in CHECKERS:
        if tuple(words[: len(begin)]) == begin:
            checker(words[len(begin) :], patch)
            return
    raise NotOurs(f"nobody knows how to check {command[:40]!r}; add it to CHECKERS")


def _by_argparse(main: Callable[[list[str]], object]) -> Callable[..., None]:
    def checker(words: list[str], patch: pytest.MonkeyPatch) -> None:
        said = StringIO()
        try:
            with only_parsing(patch), redirect_stderr(said), redirect_stdout(StringIO()):
                status = main(words)
        except Parsed:
            return
        except SystemExit as ended:
            status = ended.code
        if status in (0, None) and "--help" in words:
            return
        if said.getvalue():
            raise Wrong(said.getvalue().strip())
        raise Wrong("nothing was parsed")

    return checker


def _main_of(module: str) -> Callable[..., None]:
    return _by_argparse(lambda words: importlib.import_module(module).main(words))


def _join(words: list[str], patch: pytest.MonkeyPatch) -> None:
    """Options of the agent may follow those of `join`."""
    from runtime.agent import join
    from runtime.agent import main as agent

    said = StringIO()
    try:
        with redirect_stderr(said):
            known, rest = join._parser().parse_known_args(words)
    except SystemExit as ended:
        if ended.code == 0:  # --help
            return
        raise Wrong(said.getvalue().strip()) from None
    if known.command == "install-engine":
        return  # what follows is pip's
    _by_argparse(agent.main)(join.agent_options(known, rest, environ={}), patch)


def _manage(words: list[str], patch: pytest.MonkeyPatch) -> None:
    from django.core.management import get_commands, load_command_class

    app = get_commands().get(words[0])
    if app is None:
        raise Wrong(f"manage.py has no command {words[0]!r}")
    parser = load_command_class(app, words[0]).create_parser("manage.py", words[0])
    _by_argparse(lambda rest: parser.parse_args(rest))(words[1:], patch)


def _uvicorn(words: list[str], patch: pytest.MonkeyPatch) -> None:
    import click
    from uvicorn.main import main

    module, _, name = words[0].partition(":")
    if not (ROOT / f"{module.replace('.', '/')}.py").exists() or not name:
        raise Wrong(f"{words[0]} is no application of ours")
    try:
        main.make_context("uvicorn", words, resilient_parsing=False)
    except click.ClickException as error:
        raise Wrong(error.message) from error


def _celery(words: list[str], patch: pytest.MonkeyPatch) -> None:
    from celery.bin.celery import celery

    command = celery.commands.get(words[0])
    if command is None:
        raise Wrong(f"celery has no command {words[0]!r}")
    known = {name for option in command.params for name in option.opts}
    strange = [word for word in words[1:] if word.startswith("-") and word not in known]
    if strange:
        raise Wrong(f"celery {words[0]} does not know {strange}")


def _make(words: list[str], patch: pytest.MonkeyPatch) -> None:
    targets = re.search(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    if targets is None or words[0] not in targets[1].split():
        raise Wrong(f"the Makefile has no target {words[0]!r}")


def _pip(words: list[str], patch: pytest.MonkeyPatch) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    for word in words:
        for extra in re.findall(r"\[([\w,]+)\]", word):
            unknown = set(extra.split(",")) - set(extras)
            if unknown:
                raise Wrong(f"there are no extras {sorted(unknown)}")


def _script(words: list[str], patch: pytest.MonkeyPatch) -> None:
    """A program of `benchmarks`, by the path of its file: up to where it has parsed its options."""
    path = ROOT / words[0]
    if not path.is_file():
        raise Wrong(f"there is no file {words[0]}")
    if "ArgumentParser" not in path.read_text():
        if words[1:]:
            raise Wrong(f"{words[0]} takes no arguments")
        return

    def run(rest: list[str]) -> None:
        with patch.context() as here:
            here.setattr(sys, "argv", [str(path), *rest])
            here.syspath_prepend(str(ROOT))
            here.syspath_prepend(str(path.parent))
            runpy.run_path(str(path), run_name="__main__")

    _by_argparse(run)(words[1:], patch)


def _module(words: list[str], patch: pytest.MonkeyPatch) -> None:
    name = words[0]
    if name.startswith("benchmarks."):
        _script([name.replace(".", "/") + ".py", *words[1:]], patch)
        return
    if name in ("venv", "pip", "pytest"):
        gone = [
            word for word in words[1:] if word.startswith("tests/") and not (ROOT / word).exists()
        ]
        if gone:
            raise Wrong(f"{gone} are not there")
        return
    if importlib.util.find_spec(name) is None:
        raise Wrong(f"there is no module {name}")


CHECKERS: tuple[tuple[tuple[str, ...], Callable[..., None]], ...] = (
    (("python", "-m", "runtime"), _main_of("runtime.__main__")),
    (("python", "-m", "planner"), _main_of("planner.__main__")),
    (("helixweb",), _main_of("helixweb.command_line.main")),
    (("helix-agent",), _join),
    (("python", "manage.py"), _manage),
    (("uvicorn",), _uvicorn),
    (("celery", "-A", "helixweb"), _celery),
    (("make",), _make),
    ((".venv/bin/pip", "install"), _pip),
    (("pip", "install"), _pip),
    (("python", "-m"), _module),
    (("python",), _script),
)
PROGRAMS = ("python", "helixweb", "helix-agent", "make")
