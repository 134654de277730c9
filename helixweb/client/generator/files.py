"""The generated files as texts: one of types, one per resource, one that joins them."""

from collections.abc import Iterable

from helixweb.client.generator.operations import (
    Operation,
    header_argument,
    operations,
    python_name,
)
from helixweb.client.generator.types import Schema, definition, docstring, references

_HEAD = '''"""{about} Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations
'''


def generated_files(document: Schema) -> dict[str, str]:
    """By name; the same document gives the same files."""
    found = list(operations(document))
    by_resource: dict[str, list[Operation]] = {}
    for operation in found:
        by_resource.setdefault(operation.resource, []).append(operation)
    components = document["components"]["schemas"]
    used = _reachable(components, {name for one in found for name in one.mentions})
    about = _HEAD.format(about="What the server offers.")
    files = {"__init__.py": about.splitlines()[0] + "\n"}
    files["schemas.py"] = _schemas(components, used)
    for resource, ones in by_resource.items():
        files[f"{resource}.py"] = _resource(resource, ones, used)
    files["resources.py"] = _resources(by_resource)
    return files


def class_name(resource: str) -> str:
    """`plan_runs` -> PlanRuns."""
    return "".join(word.capitalize() for word in resource.split("_"))


def _reachable(components: Schema, names: set[str]) -> set[str]:
    """Without the types of pages, which all are `Page`."""
    waiting, seen = list(names), set[str]()
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += references(components[name])
    return {name for name in seen if not name.startswith("Paginated")}


def _schemas(components: Schema, used: set[str]) -> str:
    parts = [definition(name, components[name]) for name in sorted(used)]
    words = ["Any", "Literal", "NotRequired", "TypeAlias", "TypedDict"]
    whole = "\n\n".join(parts)
    imported = ", ".join(word for word in words if word in whole)
    head = _HEAD.format(about="Rows and requests of the REST API.")
    return f"{head}\nfrom typing import {imported}\n\n\n{whole}"


def _resource(resource: str, ones: list[Operation], used: set[str]) -> str:
    body = "".join(_filters(one) for one in ones if one.rows is not None)
    body += f"class {class_name(resource)}:\n"
    body += f'    """Operations under /api/v1/{ones[0].path.split("/")[1]}."""\n\n'
    body += "    def __init__(self, connection: Connection) -> None:\n"
    body += "        self._connection = connection\n"
    can_change = any("if_match" in map(header_argument, one.headers) for one in ones)
    for one in ones:
        body += "\n" + (_list_methods(one) if one.rows is not None else _method(one))
        if one.name == "get" and one.path_arguments and can_change:
            body += "\n" + _tagged_method(one)
    return f"{_HEAD.format(about=f'{class_name(resource)}.')}\n{_imports(body, used)}\n\n{body}"


def _imports(body: str, used: set[str]) -> str:
    lines = []
    if "Iterator" in body:
        lines.append("from collections.abc import Iterator")
    typing = [w for w in ("Any", "Literal", "TypedDict", "Unpack", "cast") if f"{w}" in body]
    if typing:
        lines.append(f"from typing import {', '.join(typing)}")
    ours = ["Connection"] + [
        word for word in ("Page", "Tagged", "path_part", "with_commas") if word in body
    ]
    lines += ["", f"from helixweb.client.connection import {', '.join(ours)}"]
    if "schemas." in body:
        lines.append("from helixweb.client.generated import schemas")
    return "\n".join(lines) + "\n"


def _filters(one: Operation) -> str:
    lines = [f"class {_filters_name(one)}(TypedDict, total=False):"]
    lines.append(f'    """Query parameters of {one.method} {one.path}."""\n')
    lines += [f"    {name}: {_qualified(kind)}" for name, kind, _ in one.query]
    return "\n".join(lines) + "\n\n\n"


def _filters_name(one: Operation) -> str:
    name = "" if one.name == "get" else class_name(one.name)
    return f"{class_name(one.resource)}{name}Filters"


def _list_methods(one: Operation) -> str:
    """`page` and `all`; of a list within a row they have its name before them."""
    first, second = ("page", "all") if one.name == "get" else (f"{one.name}_page", one.name)
    places = "".join(f", {python_name(name)}: {kind}" for name, kind in one.path_arguments)
    rows, filters = _qualified(one.rows or "Any"), _filters_name(one)
    asked = f"{_path(one)}, query={_joined(one, 'dict(filters)')}"
    about = _about(one)
    return (
        f"    def {first}(self{places}, **filters: Unpack[{filters}]) -> Page[{rows}]:\n"
        f"{about}"
        f'        answer = self._connection.call("GET", {asked})\n'
        f'        return Page(count=answer["count"], results=answer["results"])\n\n'
        f"    def {second}(self{places}, **filters: Unpack[{filters}]) -> Iterator[{rows}]:\n"
        f'        """The same, of all pages one after the other; `limit` ends it early."""\n'
        f"        return self._connection.pages({asked})\n"
    )


def _method(one: Operation) -> str:
    answer = _qualified(one.answer) if one.answer else "None"
    call = f"self._connection.call({one.method!r}, {_path(one)}"
    if one.query:
        pairs = ", ".join(f"{name!r}: {python_name(name)}" for name, _, _ in one.query)
        call += f", query={_joined(one, f'{{{pairs}}}')}"
    if one.body is not None:
        call += ", body=body"
    if one.headers:
        sent = ", ".join(f"{name!r}: {header_argument(name)}" for name in one.headers)
        call += f", headers={{{sent}}}"
    call += ")"
    does = f"        {call}\n" if one.answer is None else _returned(call, answer)
    return f"    def {one.name}(self{_arguments(one)}) -> {answer}:\n{_about(one)}{does}"


def _joined(one: Operation, query: str) -> str:
    if not one.joined:
        return query
    return f"with_commas({query}, {', '.join(map(repr, one.joined))})"


def _tagged_method(one: Operation) -> str:
    places = "".join(f", {python_name(name)}: {kind}" for name, kind in one.path_arguments)
    return (
        f"    def get_tagged(self{places}) -> Tagged[{_qualified(one.answer or 'Any')}]:\n"
        f'        """The same with its ETag, for `if_match`."""\n'
        f"        return self._connection.tagged({_path(one)})\n"
    )


def _returned(call: str, answer: str) -> str:
    return f"        return cast({answer!r}, {call})\n"


def _arguments(one: Operation) -> str:
    text = "".join(f", {python_name(name)}: {kind}" for name, kind in one.path_arguments)
    if one.body is not None:
        text += f", body: {_qualified(one.body)}"
        text += "" if one.body_required else " | None = None"
    named = sorted(one.query, key=lambda asked: not asked[2])
    if named or one.headers:
        text += ", *"
    for name, kind, required in named:
        text += f", {python_name(name)}: {_qualified(kind)}" + (
            "" if required else " | None = None"
        )
    for name in one.headers:
        text += f", {header_argument(name)}: str | None = None"
    return text


def _path(one: Operation) -> str:
    path = one.path
    for name, _ in one.path_arguments:
        path = path.replace(f"{{{name}}}", f"{{path_part({python_name(name)})}}")
    return f'f"{path}"' if one.path_arguments else f'"{path}"'


def _about(one: Operation) -> str:
    lines = docstring(one.about)
    return "".join(f"        {line}".rstrip() + "\n" for line in lines)


def _qualified(kind: str) -> str:
    """Names of components as attributes of `schemas`."""
    known = {"Any", "Literal", "None"}
    parts, word = [], ""
    quoted = ""
    for character in f"{kind} ":
        if quoted:
            parts.append(character)
            quoted = "" if character == quoted else quoted
        elif character.isalnum() or character == "_":
            word += character
        else:
            parts.append(f"schemas.{word}" if word[:1].isupper() and word not in known else word)
            word = ""
            parts.append(character)
            quoted = character if character in "'\"" else ""
    return "".join(parts)[:-1]


def _resources(by_resource: Iterable[str]) -> str:
    names = sorted(by_resource)
    text = _HEAD.format(about="All resources of the REST API.")
    text += "\nfrom helixweb.client.connection import Connection\n"
    for name in names:
        text += f"from helixweb.client.generated.{name} import {class_name(name)}\n"
    text += "\n\nclass Resources(Connection):\n"
    text += '    """A connection with one attribute per resource."""\n'
    for name in names:
        text += f"\n    @property\n    def {name}(self) -> {class_name(name)}:\n"
        text += f"        return {class_name(name)}(self)\n"
    return text
