"""Options and connection of commands that call the server."""

import argparse
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helixweb.client import Client, Row
from helixweb.command_line import settings_file
from helixweb.command_line.output import json_text
from helixweb.command_line.settings_file import BadSettings, Settings
from helixweb.command_line.surroundings import Surroundings
from helixweb.command_line.text_files import text_of
from runtime.protocol.trust import CA_HELP, ca_file

DEFAULT_URL = "http://127.0.0.1:8000"
Action = Callable[["Session", argparse.Namespace], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A command with an open connection."""

    client: Client
    around: Surroundings
    as_json: bool

    def show(self, data: Any, text: str) -> None:
        """Print `data` with --json, else `text`."""
        self.around.say(json_text(data) if self.as_json else text)


def connection_options() -> argparse.ArgumentParser:
    """Parent parser of every command that calls the server."""
    parent = argparse.ArgumentParser(add_help=False)
    group = parent.add_argument_group("server")
    group.add_argument("--url", help=f"the site; else HELIXWEB_URL, login's, or {DEFAULT_URL}")
    group.add_argument("--key", help="API key hlx_…; else HELIXWEB_KEY or login's, which is safer")
    group.add_argument("--ca", type=ca_file, metavar="FILE", help=f"{CA_HELP}; else HELIXWEB_CA")
    group.add_argument("--timeout", type=seconds, default=30.0, metavar="S", help="per request")
    group.add_argument("--json", action="store_true", help="print what the API answers")
    return parent


def run_action(arguments: argparse.Namespace) -> int:
    """`run` of modules whose parsers set the default `act`."""
    action: Action = arguments.act
    with session(arguments) as site:
        return action(site, arguments)


@contextmanager
def session(arguments: argparse.Namespace) -> Iterator[Session]:
    with client_for(arguments, settings_of(arguments), timeout_s=arguments.timeout) as client:
        yield Session(client=client, around=arguments.surroundings, as_json=arguments.json)


def client_for(arguments: argparse.Namespace, settings: Settings, *, timeout_s: float) -> Client:
    """A client of the site in `settings`, with the certificates of `--ca`."""
    return Client(
        settings.url,
        key=settings.key,
        timeout_s=timeout_s,
        ca=ca_of(arguments),
        transport=arguments.surroundings.transport,
    )


def settings_of(arguments: argparse.Namespace) -> Settings:
    """Address and key: from options, else the environment, else the file that `login` wrote.

    The key in that file is used only for the address in that file.
    """
    around: Surroundings = arguments.surroundings
    path = settings_file.path_of(around.environ)
    kept = settings_file.read(path)
    if kept.key and settings_file.is_open_to_others(path):
        around.warn(f"others can read the key in {path}; run: chmod 600 {path}")
    url = arguments.url or around.environ.get("HELIXWEB_URL") or kept.url or DEFAULT_URL
    key = arguments.key or key_of_environment(around)
    if not key and url.rstrip("/") == kept.url.rstrip("/"):
        key = kept.key
    return Settings(url=url, key=key)


def ca_of(arguments: argparse.Namespace) -> Path | None:
    """The file of trusted certificates: `--ca`, else `HELIXWEB_CA`."""
    if (given := getattr(arguments, "ca", None)) is not None:
        return Path(given)
    named = arguments.surroundings.environ.get("HELIXWEB_CA")
    if not named:
        return None
    try:
        return ca_file(named)
    except argparse.ArgumentTypeError as error:
        raise BadSettings(f"HELIXWEB_CA: {error}") from error


def key_of_environment(around: Surroundings) -> str:
    """`HELIXWEB_KEY`, or the first line of the file that `HELIXWEB_KEY_FILE` names."""
    if key := around.environ.get("HELIXWEB_KEY"):
        return key
    if named := around.environ.get("HELIXWEB_KEY_FILE"):
        return text_of(Path(named)).strip()
    return ""


def given(**values: Any) -> Row:
    """The body of a request: those values that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def seconds(text: str) -> float:
    return number_that(
        lambda value: 0 < value <= 86_400, text, "is no time; give seconds above 0, e.g. 30"
    )


def whole_number(text: str) -> int:
    if text.isascii() and text.isdecimal() and 0 < int(text) < 2**31:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not allowed; give a whole number from 1 on")


def positive(text: str) -> float:
    return number_that(
        lambda value: 0 < value < math.inf, text, "is not allowed; give a number above 0"
    )


def not_negative(text: str) -> float:
    return number_that(
        lambda value: 0 <= value < math.inf, text, "is not allowed; give a number from 0 on"
    )


def number_that(fits: Callable[[float], bool], text: str, fault: str) -> float:
    """The number in `text` if it `fits`. Raises ArgumentTypeError with the fault."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not fits(value):
        raise argparse.ArgumentTypeError(f"{text!r} {fault}")
    return value
