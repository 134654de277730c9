"""`helixweb api`: any operation of the REST API, with the address and the key of the others."""

import json
import uuid
from argparse import ArgumentTypeError
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from helixweb.client import API
from helixweb.command_line.command import command
from helixweb.command_line.failures import BadUsage
from helixweb.command_line.output import json_text
from helixweb.command_line.session import Session
from helixweb.command_line.text_files import text_of

METHODS = ("GET", "POST", "PATCH", "DELETE")


def _method(word: str) -> str:
    if word.upper() not in METHODS:
        raise ArgumentTypeError(f"{word!r} is not allowed; give one of {', '.join(METHODS)}")
    return word.upper()


def _comment(word: str) -> str:
    if not word.isprintable():
        raise ArgumentTypeError(f"{word!r} is not allowed; give one line of text")
    return word


@command()
def api(
    site: Session,
    method: Annotated[str, _method],
    path: str,
    *,
    data: str | None = None,
    query: Sequence[str] = (),
    comment: Annotated[str, _comment] | None = None,
) -> None:
    """Ask anything of the REST API that no other command asks.

    Prints what the API answers. /api/docs/ of the site lists what there is to ask.

    method METHOD: GET, POST, PATCH or DELETE
    path: such as /alert-rules/ or /plans/7/what-if/
    --data JSON: the body: JSON, @FILE, or - for what comes in
    --query NAME=VALUE: such as cluster=1
    --comment: for the change log
    """
    key = str(uuid.uuid4()) if method == "POST" else None
    answer = site.client.send(
        method,
        _path(path),
        query=_query(query),
        body=_body(site, data),
        headers={"X-Change-Comment": comment, "Idempotency-Key": key},
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


def _query(words: Sequence[str]) -> dict[str, list[str]]:
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
        text, place = text_of(Path(data[1:])), data[1:]
    else:
        text, place = data, "--data"
    try:
        body = json.loads(text)
        json.dumps(body, allow_nan=False)  # Python reads NaN and 1e999
    except ValueError as error:
        raise BadUsage(f"{place} is no JSON: {error}") from error
    except RecursionError as error:
        raise BadUsage(f"{place} is nested too deeply; make it flatter") from error
    return body
