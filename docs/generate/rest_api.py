"""The REST API, from the schema that the site serves at /api/schema/."""

import os
import re
from collections.abc import Iterator
from typing import Any

HEAD = """# REST API

Everything the pages do, a script can do: `/api/v1/…`, JSON in and out. This page is written from
the OpenAPI 3.1 document that every site serves at `/api/schema/`.

* **Who asks.** `Authorization: Bearer hlx_<key>.<secret>`, a key made on the page *Settings → API
  keys* or with `python manage.py apikey`. It has scopes: `read` to look, `write` to change, `serve`
  to ask models. Agents and coordinators have credentials of their own (`hlxn_…`).
* **Lists** answer `count`, `next`, `previous` and `results`; `?limit=` and `?offset=` page. A
  parameter that a list does not know is refused, never ignored.
* **Refusals** are problem documents (RFC 9457, `application/problem+json`): `type` ends with the
  code of [what went wrong](../troubleshooting.md), `errors` name the fields at fault.
* **Long work** answers 202 at once; its row tells how far it is, and so do the events.

"""


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
    return f"## {name}\n\n" + "".join(_operation(*row) for row in rows) + "\n"


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    return "".join(_lines(method, path, operation))


def _lines(method: str, path: str, operation: dict[str, Any]) -> Iterator[str]:
    yield f"**{method}** `{path}`\n"
    if told := _told(operation):
        yield f": {told}\n"
    queries = [
        f"`{one['name']}`" for one in operation.get("parameters", []) if one["in"] == "query"
    ]
    if queries:
        yield f"{':' if not told else ' '} *Parameters:* {', '.join(queries)}.\n"
    elif not told:
        yield ": …\n"
    yield "\n"


def _told(operation: dict[str, Any]) -> str:
    """The first paragraph of the description, on one line, free of what Markdown would read."""
    text = operation.get("summary") or operation.get("description") or ""
    first = " ".join(text.strip().split("\n\n")[0].split())
    return re.sub(r"([<>\[\]*_|{}])", r"\\\1", first)
