"""Schemas of an OpenAPI 3.1 document as Python types."""

import keyword
from collections.abc import Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]

_SIMPLE = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "null": "None",
}


def annotation(schema: Schema) -> str:
    """The type of a value, as an expression."""
    if "$ref" in schema:
        return name_of(schema["$ref"])
    if "const" in schema:
        return f"Literal[{schema['const']!r}]"
    if "enum" in schema:
        return f"Literal[{', '.join(repr(value) for value in schema['enum'])}]"
    for key in ("allOf", "oneOf", "anyOf"):
        if key in schema:
            return _union(annotation(part) for part in schema[key])
    kinds = schema.get("type", "object")
    return _union(_of_kind(kind, schema) for kind in ([kinds] if isinstance(kinds, str) else kinds))


def definition(name: str, schema: Schema) -> str:
    """The statement that defines component `name`."""
    if "properties" not in schema or schema.get("type", "object") != "object":
        return f"{name}: TypeAlias = {_quoted(annotation(schema))}\n"
    required = set(schema.get("required", ()))
    fields = {
        key: annotation(part) if key in required else f"NotRequired[{annotation(part)}]"
        for key, part in schema["properties"].items()
    }
    if not all(key.isidentifier() and not keyword.iskeyword(key) for key in fields):
        inside = ", ".join(f"{key!r}: {_quoted(kind)}" for key, kind in fields.items())
        return f"{name} = TypedDict({name!r}, {{{inside}}})\n"
    lines = [f"class {name}(TypedDict):"]
    text = docstring(schema.get("description", ""))
    if text:
        lines += [f"    {line}".rstrip() for line in text]
        lines.append("")
    lines += [f"    {key}: {kind}" for key, kind in fields.items()]
    return "\n".join(lines) + "\n"


def docstring(text: str) -> list[str]:
    """Its lines, none for an empty text."""
    lines = text.strip().replace("\\", "\\\\").replace('"""', "'''").splitlines()
    if not lines:
        return []
    lines[0] = f'"""{lines[0]}'
    if len(lines) == 1 and not lines[0].endswith('"'):
        return [f'{lines[0]}"""']
    return [*lines, '"""']


def name_of(reference: str) -> str:
    """Of a component, without the Request that drf-spectacular adds to what is named so already."""
    return reference.rpartition("/")[2]


def references(schema: Any) -> Iterator[str]:
    """Names of the components that a schema mentions, at any depth."""
    if isinstance(schema, Mapping):
        if isinstance(schema.get("$ref"), str):
            yield name_of(schema["$ref"])
        for value in schema.values():
            yield from references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from references(value)


def _of_kind(kind: str, schema: Schema) -> str:
    if kind == "array":
        items = schema.get("items")
        return f"list[{annotation(items) if isinstance(items, Mapping) and items else 'Any'}]"
    if kind == "object":
        extra = schema.get("additionalProperties")
        return f"dict[str, {annotation(extra) if isinstance(extra, Mapping) and extra else 'Any'}]"
    return _SIMPLE[kind]


def _union(parts: Iterator[str]) -> str:
    return " | ".join(dict.fromkeys(parts))


def _quoted(kind: str) -> str:
    return f'"{kind}"' if '"' not in kind else repr(kind)
