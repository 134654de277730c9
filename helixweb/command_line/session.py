"""Options and connection of commands that call the server."""

import argparse
import uuid
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from helixweb.command_line import settings_file
from helixweb.command_line.failures import BadUsage
from helixweb.command_line.numbers import seconds
from helixweb.command_line.output import Cells, details, json_text, rows_table
from helixweb.command_line.settings_file import Settings
from helixweb.command_line.surroundings import Surroundings
from helixweb.command_line.text_files import text_of
from runtime.protocol.trust import CA_HELP, ca_file

if TYPE_CHECKING:  # httpx takes a third of the time of `--help`
    from helixweb.client import Client, Rows

Row: TypeAlias = dict[str, Any]

DEFAULT_URL = "http://127.0.0.1:8000"
# Attributes of the namespace that are no arguments of a command's own.
OF_EVERY_COMMAND = frozenset(
    ("command", "action", "run_command", "surroundings", "url", "key", "ca", "timeout", "json")
)


class Session:
    """Context of a command that calls the server; the connection is made on first use."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.around: Surroundings = arguments.surroundings
        self.as_json: bool = arguments.json

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if "client" in vars(self):
            self.client.close()

    @cached_property
    def client(self) -> "Client":
        return self.client_of(self.settings)

    def client_of(self, settings: Settings) -> "Client":
        """A client that trusts the certificates of `--ca` or `HELIXWEB_CA`."""
        from helixweb.client import Client

        return Client(
            settings.url,
            key=settings.key,
            timeout_s=self.arguments.timeout,
            ca=self.ca,
            transport=self.around.transport,
        )

    @property
    def ca(self) -> Path | None:
        """The file of `--ca`, else of `HELIXWEB_CA`. Raises BadUsage."""
        return self.arguments.ca or ca_named(self.around.environ, "HELIXWEB_CA")

    @cached_property
    def settings(self) -> Settings:
        """Address and key: from options, else the environment, else the file that `login` wrote.

        The key in that file is used only for the address in that file.
        """
        path = settings_file.path_of(self.around.environ)
        stored = settings_file.read(path)
        if stored.key and settings_file.is_open_to_others(path):
            self.around.warn(f"others can read the key in {path}; run: chmod 600 {path}")
        url = self.url_before(stored.url)
        key = self.given_key
        if not key and url.rstrip("/") == stored.url.rstrip("/"):
            key = stored.key
        return Settings(url=url, key=key)

    def url_before(self, stored: str) -> str:
        """The address that was given, else the `stored` one."""
        given_url: str | None = self.arguments.url
        return given_url or self.around.environ.get("HELIXWEB_URL") or stored or DEFAULT_URL

    @property
    def given_key(self) -> str:
        """`--key`, else `HELIXWEB_KEY`, else the content of the file `HELIXWEB_KEY_FILE`."""
        if key := self.arguments.key or self.around.environ.get("HELIXWEB_KEY"):
            return str(key)
        named = self.around.environ.get("HELIXWEB_KEY_FILE")
        return text_of(Path(named)).strip() if named else ""

    def show(self, data: Any, text: str) -> None:
        """Print `data` with --json, else `text`."""
        self.around.say(json_text(data) if self.as_json else text)

    def show_rows(self, rows: list[Row], cells: Cells) -> None:
        """Print a table of rows."""
        self.show(rows, rows_table(cells, rows))

    def show_row(self, row: Row, cells: Cells, rest: str = "") -> None:
        """Print one row, a value per line; `rest` follows."""
        self.show(row, "\n\n".join(filter(None, (details(cells, row), rest))))

    def create(self, rows: "Rows", body: Row) -> Row:
        """POST a row, once however often the connection breaks."""
        return rows.create(body, idempotency_key=str(uuid.uuid4()))

    def do(self, rows: "Rows", action: str, key: object, body: Any = None) -> Any:
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


def ca_named(environ: Mapping[str, str], variable: str) -> Path | None:
    """The file of trusted certificates that a variable of the environment names."""
    try:
        return ca_file(environ[variable]) if environ.get(variable) else None
    except argparse.ArgumentTypeError as error:
        raise BadUsage(f"{variable}: {error}") from error


def given(**values: Any) -> Row:
    """The body of a request: those values that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def once_each(pairs: Sequence[tuple[str, str]], option: str) -> dict[str, str]:
    """The values of `option` by their names. Raises BadUsage for a name that is given twice."""
    names = [name for name, _ in pairs]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise BadUsage(f"{option} names {twice[0]!r} twice; keep one")
    return dict(pairs)
