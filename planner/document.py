"""Reading JSON and YAML documents by hand, with errors that name the key, the value, the remedy.

`parse_document` makes plain Python values of a text; `Section` reads one mapping of them.
"""

import json
import math
from dataclasses import dataclass

from planner.domain.errors import InvalidProblem
from planner.yaml_reader import YamlRefused, read_yaml

_LONGEST_SHOWN = 60


def parse_document(text: str, *, name_hint: str) -> object:
    """Plain values of a JSON or YAML text; `name_hint`'s suffix decides, else the first character.

    YAML is read as `planner.yaml_reader` says. Refuses what JSON's readers let pass: NaN,
    infinities, a key written twice. Raises InvalidProblem with the line.
    """
    text = text.removeprefix("\ufeff")
    suffix = name_hint.rpartition(".")[2].lower()
    is_json = suffix == "json" or (
        suffix not in ("yaml", "yml") and text.lstrip().startswith(("{", "["))
    )
    try:
        return _parse_json(text) if is_json else _parse_yaml(text)
    except RecursionError:
        raise InvalidProblem(
            "the document is nested too deeply; a problem or plan has fewer than ten levels"
        ) from None


@dataclass(frozen=True, slots=True)
class Section:
    """One mapping of a document and the path that leads to it."""

    values: dict[str, object]
    path: str

    @classmethod
    def at(cls, value: object, path: str) -> "Section":
        """A section. Raises InvalidProblem unless `value` is a mapping with text keys."""
        if not isinstance(value, dict):
            raise wrong_type(path, value, "a mapping of keys to values")
        for key in value:
            if not isinstance(key, str):
                raise InvalidProblem(
                    f"{path or 'the document'} has the key {shown(key)}, which is not text; "
                    "put it in quotes"
                )
        return cls(value, path)

    def path_of(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def allow_only(self, *known: str) -> None:
        """Raise InvalidProblem for an unknown key."""
        for key in self.values:
            if key not in known:
                raise InvalidProblem(
                    f"{self.path_of(key)} is not a key of the format; remove it or use one of: "
                    f"{', '.join(known)}"
                )

    def has(self, key: str) -> bool:
        return key in self.values

    def value(self, key: str) -> object:
        if key not in self.values:
            raise InvalidProblem(f"{self.path_of(key)} is missing; add it")
        return self.values[key]

    def section(self, key: str) -> "Section":
        return Section.at(self.value(key), self.path_of(key))

    def items(self, key: str) -> list[object]:
        value = self.value(key)
        if not isinstance(value, list):
            raise wrong_type(self.path_of(key), value, "a list")
        return value

    def text(self, key: str) -> str:
        return text(self.value(key), self.path_of(key))


def text(value: object, path: str) -> str:
    if not isinstance(value, str):
        raise wrong_type(path, value, "text (in quotes if YAML reads it otherwise)")
    return value


def boolean(value: object, path: str) -> bool:
    if not isinstance(value, bool):
        raise wrong_type(path, value, "true or false")
    return value


def finite_number(value: object, path: str) -> float:
    """A float; refuses booleans, text, NaN, infinities and what no float can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_type(path, value, "a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InvalidProblem(f"{path} is {shown(value)}; it must be a finite number")
    return number


def integer(value: object, path: str) -> int:
    """A whole number; 4.0 is accepted as 4."""
    number = finite_number(value, path)
    if not number.is_integer():
        raise InvalidProblem(f"{path} is {shown(value)}; it must be a whole number")
    return int(number)


def wrong_type(path: str, value: object, expected: str) -> InvalidProblem:
    """The error for a value of the wrong type."""
    return InvalidProblem(f"{path or 'the document'} is {shown(value)}; it must be {expected}")


def shown(value: object) -> str:
    """A value as error messages print it: with its kind, on one line, cut when long."""
    if value is None:
        return "empty (null)"
    if isinstance(value, bool):
        return f"the boolean {'true' if value else 'false'}"
    if isinstance(value, dict):
        return f"a mapping of {len(value)} keys"
    if isinstance(value, list):
        return f"a list of {len(value)} items"
    if isinstance(value, str):
        return f"the text {_shortened(repr(value))}"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, int):
        return str(value) if abs(value) < 10**_LONGEST_SHOWN else "a huge number"
    return f"a {type(value).__name__} ({_shortened(str(value))})"


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + "..."


def _parse_json(text: str) -> object:
    def refuse_constant(constant: str) -> object:
        raise InvalidProblem(f"the document contains {constant}; every number must be finite")

    def refuse_twice(pairs: list[tuple[str, object]]) -> dict[str, object]:
        mapping: dict[str, object] = {}
        for key, value in pairs:
            if key in mapping:
                raise InvalidProblem(f"the key {shown(key)} appears twice in one mapping; keep one")
            mapping[key] = value
        return mapping

    try:
        value: object = json.loads(
            text, parse_constant=refuse_constant, object_pairs_hook=refuse_twice
        )
    except json.JSONDecodeError as error:
        raise InvalidProblem(
            f"line {error.lineno}, column {error.colno}: not valid JSON ({error.msg}); correct it "
            "there, or name the file .yaml if it is YAML"
        ) from None
    except ValueError as error:
        if isinstance(error, InvalidProblem):
            raise
        raise InvalidProblem(f"not valid JSON ({error}); write shorter numbers") from None
    return value


def _parse_yaml(text: str) -> object:
    try:
        return read_yaml(text)
    except YamlRefused as error:
        raise InvalidProblem(str(error)) from None
