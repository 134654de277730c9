"""`helixweb api`: any operation of the REST API, with the address and the key of the others."""

import json
import uuid
from argparse import Namespace
from pathlib import Path
from typing import Any

from helixweb.client.connection import API
from helixweb.command_line.command import argument, command
from helixweb.command_line.failures import BadUsage
from helixweb.command_line.output import json_text
from helixweb.command_line.session import Session

METHODS = ("GET", "POST", "PATCH", "DELETE")


@command(
    argument("method", type=str.upper, choices=METHODS, metavar="METHOD"),
    argument("path", help="such as /alert-rules/ or /plans/7/what-if/"),
    argument("--data", metavar="JSON", help="the body: JSON, @FILE, or - for what comes in"),
    argument(
        "--query", action="append", default=[], metavar="NAME=VALUE", help="such as cluster=1"
    ),
    argument("--comment", help="for the change log"),
    description="Prints what the API answers. /api/docs/ of the site lists what there is to ask.",
)
def api(site: Session, arguments: Namespace) -> None:
    method: str = arguments.method
    headers = {
        "X-Change-Comment": arguments.comment,
        "Idempotency-Key": str(uuid.uuid4()) if method == "POST" else None,
    }
    answer = site.client.send(
        method,
        _path(arguments.path),
        query=_query(arguments.query),
        json=_body(site, arguments.data),
        headers=headers,
    )
    is_json = "json" in answer.headers.get("Content-Type", "")
    if answer.content:
        site.around.say(json_text(answer.json()) if is_json else answer.text.rstrip("\n"))


def _path(word: str) -> str:
    """Below the API, however much of the address was written."""
    if "?" in word or "#" in word or "://" in word:
        raise BadUsage(
            f"{word!r} is no path such as /nodes/; give parameters as --query NAME=VALUE"
        )
    inner = word.strip("/").removeprefix(API.strip("/")).strip("/")
    return f"/{inner}/" if inner else "/"


def _query(words: list[str]) -> dict[str, list[str]]:
    query = dict[str, list[str]]()
    for word in words:
        name, equals, value = word.partition("=")
        if not (name and equals):
            raise BadUsage(f"--query {word!r} is not NAME=VALUE")
        query.setdefault(name, []).append(value)
    return query


def _body(site: Session, data: str | None) -> Any:
    if data is None:
        return None
    if data == "-":
        text, place = site.around.input.read(), "standard input"
    elif data.startswith("@"):
        text, place = Path(data[1:]).read_text(encoding="utf-8"), data[1:]
    else:
        text, place = data, "--data"
    try:
        return json.loads(text)
    except ValueError as error:
        raise BadUsage(f"{place} is no JSON: {error}") from error
