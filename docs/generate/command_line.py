"""What every command says of itself, from its own parser."""

import argparse
import contextlib
import importlib
import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence

from helixweb.command_line.main import parser_for
from helixweb.command_line.registry import COMMANDS
from planner.__main__ import _commands as planner_commands
from planner.__main__ import main as planner
from runtime.__main__ import PROGRAMS

# Started by the agent, never by a person.
NOT_FOR_PEOPLE = {"stage", "profile-node"}
SITE_COMMANDS = ("apikey", "loginlink", "simulate_traffic")
WIDTH = "96"

HEAD = """# Command line

Written from the parsers themselves: `--help` of each command says the same. `helixweb` is the
command for people and scripts; `python -m planner` plans from files without a site;
`python -m runtime` starts one process on one machine; `python manage.py` works on the site's own
database.

`helixweb` asks a site over its REST API: which one, and with which key, say `--url` and `--key`,
else `HELIXWEB_URL` and `HELIXWEB_KEY` (or `HELIXWEB_KEY_FILE`), else what `helixweb login` kept.
`--json` prints what the API answers. `up`, `demo`, `backup` and `restore` work on this machine.
Exit statuses are in [troubleshooting](../troubleshooting.md#commands).

"""


def page() -> str:
    """All commands with their options."""
    return HEAD + "".join(_sections())


def _sections() -> Iterator[str]:
    yield "## helixweb\n\n"
    yield _block(_told(_helixweb, ["--help"]))
    for name in COMMANDS:
        yield f"### helixweb {name}\n\n" + _block(_told(_helixweb, [name, "--help"]))
        for action in _actions(parser_for([name]), name):
            told = _told(_helixweb, [name, action, "--help"])
            yield f"#### helixweb {name} {action}\n\n" + _block(told)
    yield "## helix-agent\n\n" + _block(_told(_helix_agent, ["join", "--help"]))
    yield "## python -m planner\n\n"
    for name in planner_commands():
        yield f"### python -m planner {name}\n\n" + _block(_told(planner, [name, "--help"]))
    yield "## python -m runtime\n\n"
    for name, (module, _) in PROGRAMS.items():
        if name not in NOT_FOR_PEOPLE:
            told = _told(importlib.import_module(module).main, ["--help"])
            yield f"### python -m runtime {name}\n\n" + _block(told)
    yield "## python manage.py\n\n"
    for name in SITE_COMMANDS:
        yield f"### python manage.py {name}\n\n" + _block(_told(_manage, [name, "--help"]))


def _actions(parser: argparse.ArgumentParser, command: str) -> Iterator[str]:
    """Of a command that has some, such as `node add`."""
    yield from _choices(_choices(parser).get(command))


def _choices(parser: argparse.ArgumentParser | None) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions if parser else ():
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _told(main: Callable[[list[str]], object], words: Sequence[str]) -> str:
    """What it prints for these words."""
    said = io.StringIO()
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = WIDTH
    try:
        with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
            main(list(words))
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before
    return said.getvalue()


def _block(text: str) -> str:
    return f"```text\n{text.rstrip()}\n```\n\n"


def _helixweb(words: list[str]) -> object:
    from helixweb.command_line.main import main

    return main(words)


def _helix_agent(words: list[str]) -> object:
    from runtime.agent.join import main

    return main(words)


def _manage(words: list[str]) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "helixweb.settings")
    import django
    from django.core.management import get_commands, load_command_class

    django.setup()
    parser = load_command_class(get_commands()[words[0]], words[0]).create_parser(
        "manage.py", words[0]
    )
    sys.stdout.write(parser.format_help())
