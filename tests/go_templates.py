"""A double of Helm's template language, as far as our chart uses it: no `helm` where tests run.

Pipelines, `if`/`else if`/`else`, `range`, `with`, `define` and `include`, variables, and some
functions of Sprig. What it does not know it refuses, so a chart cannot pass by being ignored.
"""

import base64
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

_ACTION = re.compile(r"\{\{(-?)\s*(.*?)\s*(-?)\}\}", re.DOTALL)
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|`[^`]*`|\(|\)|\||:=|,|[^\s()|,]+')


class TemplateFault(Exception):
    """What Helm would refuse, or what this double does not know."""


@dataclass
class Node:
    """Text, an action, or a block (`word`: if, range, with, define) with its branches."""

    word: str
    argument: str = ""
    branches: list[tuple[str, list["Node"]]] = field(default_factory=list)


@dataclass(frozen=True)
class Scope:
    """What `.` is, and the variables."""

    dot: Any
    variables: dict[str, Any]

    def inner(self, dot: Any) -> "Scope":
        return Scope(dot, dict(self.variables))


class Chart:
    """Templates by name; `render` gives the documents of one."""

    def __init__(self, templates: Mapping[str, str]) -> None:
        self.defined: dict[str, list[Node]] = {}
        self.files = {name: _parsed(text) for name, text in templates.items()}
        for nodes in self.files.values():
            for node in nodes:
                if node.word == "define":
                    self.defined[node.argument.strip('"')] = node.branches[0][1]

    def render(self, name: str, context: Mapping[str, Any]) -> str:
        """The text of a template. Raises TemplateFault."""
        return self._run(self.files[name], Scope(context, {"$": context}))

    def _run(self, nodes: list[Node], scope: Scope) -> str:
        return "".join(self._text(node, scope) for node in nodes)

    def _text(self, node: Node, scope: Scope) -> str:
        if node.word == "text":
            return node.argument
        if node.word == "define":
            return ""
        if node.word == "action":
            return self._act(node.argument, scope)
        if node.word == "if":
            for condition, nodes in node.branches:
                if condition == "else" or _true(self.value(condition, scope)):
                    return self._run(nodes, scope.inner(scope.dot))
            return ""
        (head, nodes), *others = node.branches
        variable, _, expression = head.rpartition(":=")
        found = self.value(expression, scope)
        if not _true(found):
            return self._run(others[0][1], scope) if others else ""
        items = [found] if node.word == "with" else list(found)
        text = ""
        for item in items:
            inner = scope.inner(item)
            if variable:
                inner.variables[variable.strip()] = item
            text += self._run(nodes, inner)
        return text

    def _act(self, expression: str, scope: Scope) -> str:
        if expression.startswith("/*"):
            return ""
        name, assigned, rest = expression.partition(":=")
        if assigned and name.strip().startswith("$"):
            scope.variables[name.strip()] = self.value(rest, scope)
            return ""
        return _said(self.value(expression, scope))

    def value(self, expression: str, scope: Scope) -> Any:
        """Of a pipeline."""
        tokens = _TOKEN.findall(expression)
        found, rest = self._pipeline(tokens, scope)
        if rest:
            raise TemplateFault(f"not understood: {expression!r}")
        return found

    def _pipeline(self, tokens: list[str], scope: Scope) -> tuple[Any, list[str]]:
        found, rest = self._command(tokens, scope, ())
        while rest and rest[0] == "|":
            found, rest = self._command(rest[1:], scope, (found,))
        return found, rest

    def _command(
        self, tokens: list[str], scope: Scope, last: tuple[Any, ...]
    ) -> tuple[Any, list[str]]:
        words: list[Any] = []
        first = tokens[0] if tokens else ""
        rest = tokens
        while rest and rest[0] not in ("|", ")"):
            if rest[0] == "(":
                inner, rest = self._pipeline(rest[1:], scope)
                if not rest or rest[0] != ")":
                    raise TemplateFault("a bracket is not closed")
                rest = rest[1:]
                words.append(inner)
            elif not words and rest[0] in FUNCTIONS | {"include": None}:
                words.append(rest[0])
                rest = rest[1:]
            else:
                words.append(_operand(rest[0], scope))
                rest = rest[1:]
        if first == "include":
            name, context = words[1], words[2]
            if name not in self.defined:
                raise TemplateFault(f"no template {name!r}")
            return self._run(self.defined[name], Scope(context, {"$": context})), rest
        if first in FUNCTIONS:
            return FUNCTIONS[first](*words[1:], *last), rest
        if len(words) != 1 or last:
            raise TemplateFault(f"no function {first!r}")
        return words[0], rest


def _operand(token: str, scope: Scope) -> Any:
    if token[0] in '"`':
        return yaml.safe_load(token) if token[0] == '"' else token[1:-1]
    if re.fullmatch(r"-?\d+", token):
        return int(token)
    if token in ("true", "false"):
        return token == "true"
    if token == ".":
        return scope.dot
    if token.startswith("."):
        return _path(scope.dot, token[1:])
    if token.startswith("$"):
        name, _, path = token.partition(".")
        if name not in scope.variables:
            raise TemplateFault(f"no variable {name}")
        found = scope.variables[name]
        return _path(found, path) if path else found
    raise TemplateFault(f"no function {token!r}")


def _path(of: Any, path: str) -> Any:
    for name in path.split("."):
        if not isinstance(of, Mapping):
            raise TemplateFault(f"{path}: {name} of what is no object")
        of = of.get(name)
    return of


def _parsed(text: str) -> list[Node]:
    nodes, rest = _block(list(_pieces(text)))
    if rest:
        raise TemplateFault(f"`{rest[0].argument}` ends no block")
    return nodes


def _pieces(text: str) -> Iterator[Node]:
    """Text and actions; a dash takes the blanks beside it away."""
    at, trim = 0, False
    for match in _ACTION.finditer(text):
        before = text[at : match.start()]
        before = before.lstrip() if trim else before
        yield Node("text", before.rstrip() if match[1] else before)
        yield Node("action", match[2])
        at, trim = match.end(), bool(match[3])
    yield Node("text", text[at:].lstrip() if trim else text[at:])


def _block(pieces: list[Node]) -> tuple[list[Node], list[Node]]:
    """Nodes up to an `end` or `else` that is not theirs, and the rest from there."""
    found: list[Node] = []
    while pieces:
        piece = pieces[0]
        word, _, argument = piece.argument.partition(" ")
        if piece.word == "action" and word in ("end", "else"):
            return found, pieces
        pieces = pieces[1:]
        if piece.word == "action" and word in ("if", "range", "with", "define"):
            node = Node(word, argument)
            head = argument
            while True:
                inner, pieces = _block(pieces)
                node.branches.append((head, inner))
                if not pieces:
                    raise TemplateFault(f"`{word} {argument}` has no end")
                ending, pieces = pieces[0].argument, pieces[1:]
                if ending == "end":
                    break
                head = ending.removeprefix("else").strip().removeprefix("if").strip() or "else"
            found.append(node)
        else:
            found.append(piece)
    return found, []


def _true(value: Any) -> bool:
    return value not in (None, False, 0, "", [], {}, ())


def _said(value: Any) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _required(told: str, value: Any) -> Any:
    if not _true(value):
        raise TemplateFault(told)
    return value


def _indented(width: int, text: str) -> str:
    return "\n".join(" " * width + line for line in text.split("\n"))


def _to_yaml(value: Any) -> str:
    return yaml.safe_dump(value, sort_keys=True, default_flow_style=False).removesuffix("\n")


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "default": lambda fallback, value=None: value if _true(value) else fallback,
    "quote": lambda value: '"' + _said(value).replace("\\", "\\\\").replace('"', '\\"') + '"',
    "squote": lambda value: f"'{_said(value)}'",
    "b64enc": lambda text: base64.b64encode(text.encode()).decode(),
    "trunc": lambda length, text: text[:length],
    "trimSuffix": lambda suffix, text: text.removesuffix(suffix),
    "nindent": lambda width, text: "\n" + _indented(width, text),
    "indent": _indented,
    "toYaml": _to_yaml,
    "required": _required,
    "list": lambda *items: list(items),
    "prepend": lambda items, item: [item, *items],
    "join": lambda between, items: between.join(_said(item) for item in items),
    "index": lambda of, *keys: [of := of[key] for key in keys][-1],
    "int": int,
    "not": lambda value: not _true(value),
    "and": lambda *values: next((one for one in values if not _true(one)), values[-1]),
    "or": lambda *values: next((one for one in values if _true(one)), values[-1]),
    "eq": lambda one, other: one == other,
    "gt": lambda one, other: one > other,
    "printf": lambda form, *values: form % values,
    "lookup": lambda *where: {},  # as in `helm template`: nothing is there
    "randAlphaNum": lambda length: "x" * length,
    "regexReplaceAll": lambda pattern, text, by: re.sub(
        pattern, re.sub(r"\$\{(\d+)\}", r"\\\1", by), text
    ),
}
