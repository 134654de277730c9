"""The REST API, from the schema that the site serves at /api/schema/."""

import os
import re
from collections import Counter
from typing import Any

HEAD = """# REST API

Everything the pages do, a script can do: `/api/v1/…`, JSON in and out. This page is written from
the OpenAPI 3.1 document that every site serves at `/api/schema/`, and shows with examples at
`/api/docs/`.

* **Who asks.** `Authorization: Bearer hlx_<key>.<secret>`, a key made on the page *Settings → API
  keys*; what it may is in [people, roles and keys](../operate/keys-and-roles.md). Agents and
  coordinators have credentials of their own (`hlxn_…`).
* **Lists** answer `count`, `next`, `previous` and `results`; `limit` and `offset` page, `ordering`
  sorts, `q` searches, `fields` names the fields that are wanted. A parameter that a list does not
  know, or that is empty, is refused, never ignored.
* **Reading again**: rows and lists come with an `ETag`; sent back as `If-None-Match`, the answer is
  304 without a body if nothing changed.
* **Several rows at once**: `…/batch/` does all of them or none, with the errors of each.
* **Edits by several people**: a row comes with an `ETag`; sent back as `If-Match`, the edit is
  refused with 412 if somebody else was faster.
* **Once and not twice**: a POST with an `Idempotency-Key` is done once; repeated within a day it is
  answered as the first time.
* **Long work** answers 202 at once, with the address that tells how far it is; `/api/v1/events/`
  tells of changes, as a stream or by long poll.
* **Refusals** are problem documents (RFC 9457, `application/problem+json`): `type` ends with the
  code of [what went wrong](../troubleshooting.md), `errors` name the fields at fault.

"""
# What a text that several operations of a resource share says of each.
VERBS = {
    "list": "List them.",
    "create": "Make one.",
    "retrieve": "One of them.",
    "update": "Replace one.",
    "partial_update": "Change fields of one.",
    "destroy": "Delete one.",
}


def page() -> str:
    """Operations by resource."""
    document = _schema()
    groups: dict[str, list[tuple[str, str, dict[str, Any]]]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            groups.setdefault(_resource(path), []).append((method.upper(), path, operation))
    return HEAD + "".join(_section(name, rows) for name, rows in sorted(groups.items()))


def _schema() -> dict[str, Any]:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "helixweb.settings")
    import django

    django.setup()
    from drf_spectacular.generators import SchemaGenerator

    document: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)
    return document


def _resource(path: str) -> str:
    words = path.removeprefix("/api/v1/").strip("/").split("/")
    return words[0] if words[0] else path


def _section(name: str, rows: list[tuple[str, str, dict[str, Any]]]) -> str:
    counts = Counter(_told(operation) for _, _, operation in rows)
    shared = {text for text, count in counts.items() if count > 1}
    about = "".join(f"{text}\n\n" for text in counts if text in shared)
    return f"## {name}\n\n{about}" + "".join(_operation(*row, shared=shared) for row in rows)


def _operation(method: str, path: str, operation: dict[str, Any], *, shared: set[str]) -> str:
    told = _told(operation)
    if told in shared:
        told = next(
            (
                words
                for verb, words in sorted(VERBS.items(), key=lambda one: -len(one[0]))
                if operation.get("operationId", "").endswith(f"_{verb}")
            ),
            "",
        )
    queries = [
        f"`{one['name']}`" for one in operation.get("parameters", []) if one["in"] == "query"
    ]
    parts = [told] if told else []
    if queries:
        parts.append(f"*Parameters:* {', '.join(queries)}.")
    return f"**{method}** `{path}`\n: {' '.join(parts) or '…'}\n\n"


def _told(operation: dict[str, Any]) -> str:
    """The first paragraph of the description, on one line, free of what Markdown would read."""
    text = operation.get("summary") or operation.get("description") or ""
    first = " ".join(text.strip().split("\n\n")[0].split())
    return re.sub(r"([<>\[\]*_|{}])", r"\\\1", first)
