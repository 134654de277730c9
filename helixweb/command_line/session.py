"""Options and connection of commands that call the server."""

import argparse
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helixweb.client import Client, Row, Rows
from helixweb.command_line import settings_file
from helixweb.command_line.failures import BadUsage
from helixweb.command_line.numbers import seconds
from helixweb.command_line.output import Cells, details, json_text, rows_table
from helixweb.command_line.settings_file import Settings
from helixweb.command_line.surroundings import Surroundings
from helixweb.command_line.text_files import text_of
from runtime.protocol.trust import CA_HELP, ca_file

DEFAULT_URL = "http://127.0.0.1:8000"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A command with an open connection."""

    client: Client
    around: Surroundings
    as_json: bool

    def show(self, data: Any, text: str) -> None:
        """Print `data` with --json, else `text`."""
        self.around.say(json_text(data) if self.as_json else text)

    def show_rows(self, rows: list[Row], cells: Cells) -> None:
        """Print a table of rows."""
        self.show(rows, rows_table(cells, rows))

    def show_row(self, row: Row, cells: Cells, rest: str = "") -> None:
        """Print one row, a value per line; `rest` follows."""
        self.show(row, "\n\n".join(filter(None, (details(cells, row), rest))))

    def create(self, rows: Rows, body: Row) -> Row:
        """POST a row, once however often the connection breaks."""
        return rows.create(body, idempotency_key=str(uuid.uuid4()))

    def do(self, rows: Rows, action: str, key: object, body: Any = None) -> Any:
        """POST an action, once however often the connection breaks."""
        return rows.do(action, key, body, idempotency_key=str(uuid.uuid4()))


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


@contextmanager
def session(arguments: argparse.Namespace) -> Iterator[Session]:
    with client_for(arguments, settings_of(arguments), timeout_s=arguments.timeout) as client:
        yield Session(client=client, around=arguments.surroundings, as_json=arguments.json)


def client_for(arguments: argparse.Namespace, settings: Settings, *, timeout_s: float) -> Client:
    """A client of the site in `settings`, with the certificates of `--ca` or `HELIXWEB_CA`."""
    around: Surroundings = arguments.surroundings
    return Client(
        settings.url,
        key=settings.key,
        timeout_s=timeout_s,
        ca=getattr(arguments, "ca", None) or ca_named(around.environ, "HELIXWEB_CA"),
        transport=around.transport,
    )


def settings_of(arguments: argparse.Namespace) -> Settings:
    """Address and key: from options, else the environment, else the file that `login` wrote.

    The key in that file is used only for the address in that file.
    """
    around: Surroundings = arguments.surroundings
    path = settings_file.path_of(around.environ)
    stored = settings_file.read(path)
    if stored.key and settings_file.is_open_to_others(path):
        around.warn(f"others can read the key in {path}; run: chmod 600 {path}")
    url = arguments.url or around.environ.get("HELIXWEB_URL") or stored.url or DEFAULT_URL
    key = arguments.key or key_of_environment(around)
    if not key and url.rstrip("/") == stored.url.rstrip("/"):
        key = stored.key
    return Settings(url=url, key=key)


def ca_named(environ: Mapping[str, str], variable: str) -> Path | None:
    """The file of trusted certificates that a variable of the environment names."""
    try:
        return ca_file(environ[variable]) if environ.get(variable) else None
    except argparse.ArgumentTypeError as error:
        raise BadUsage(f"{variable}: {error}") from error


def key_of_environment(around: Surroundings) -> str:
    """`HELIXWEB_KEY`, or the first line of the file that `HELIXWEB_KEY_FILE` names."""
    if key := around.environ.get("HELIXWEB_KEY"):
        return key
    named = around.environ.get("HELIXWEB_KEY_FILE")
    return text_of(Path(named)).strip() if named else ""


def given(**values: Any) -> Row:
    """The body of a request: those values that are not None."""
    return {name: value for name, value in values.items() if value is not None}
