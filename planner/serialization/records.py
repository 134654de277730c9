"""Records in documents: dataclasses read and written by the types of their fields.

A type says what its values are and may be: texts, numbers of 0 or more unless it has another
`Range`, mappings, lists, records. Errors are those of a `Section`.
"""

import functools
from collections.abc import Collection, Mapping
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from planner.document import Section, boolean, finite_number, integer, text, wrong_type
from planner.domain.errors import InvalidPlacement, InvalidProblem
from planner.domain.limits import Range, check, limits_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Record = TypeVar("Record", bound="DataclassInstance")


def record_to_dict(record: "DataclassInstance", *, brief: bool = False) -> dict[str, object]:
    """The section that `record_from` reads; `brief`: without defaults that are None or empty."""
    return {
        one.name: _plain(value, brief=brief)
        for one in fields(record)
        for value in [getattr(record, one.name)]
        if not (brief and _has_default(one) and value in (None, (), {}))
    }


def record_from(
    section: Section,
    kind: type[Record],
    *,
    given: Mapping[str, object] | None = None,
    besides: Collection[str] = (),
) -> Record:
    """A key for every field but those `given`; one whose field has a default may be missing.

    The section may have the keys `besides` and the `former_keys` of the class, too. Raises
    InvalidProblem, also for what the class refuses.
    """
    given = given or {}
    types = {key: found for key, found in _types_of(kind).items() if key not in given}
    section.allow_only(*types, *besides, *getattr(kind, "former_keys", ()))
    values = {
        key: value_from(section.value(key), section.path_of(key), hint)
        for key, (hint, may_be_missing) in types.items()
        if section.has(key) or not may_be_missing
    }
    try:
        return kind(**given, **values)
    except (InvalidPlacement, InvalidProblem) as error:
        where = "" if section.path in str(error) else f"{section.path}: "
        raise InvalidProblem(f"{where}{error}") from None


def value_from(value: object, path: str, hint: Any) -> Any:
    """The value of a document as its type says. Raises InvalidProblem."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return None if value is None else value_from(value, path, _without_none(arguments))
    if origin is tuple:
        has_any_length = Ellipsis in arguments
        if not isinstance(value, list) or not (has_any_length or len(value) == len(arguments)):
            wanted = "a pair" if len(arguments) == 2 else f"a list of {len(arguments)}"
            raise wrong_type(path, value, "a list" if has_any_length else wanted)
        kinds = arguments[:1] * len(value) if has_any_length else arguments
        return tuple(
            value_from(one, f"{path}[{index}]", kind)
            for index, (one, kind) in enumerate(zip(value, kinds, strict=True))
        )
    if origin is Mapping:
        section = Section.at(value, path)
        return {
            _key(name, section, arguments[0]): value_from(one, section.path_of(name), arguments[1])
            for name, one in section.values.items()
        }
    if is_dataclass(hint):
        return record_from(Section.at(value, path), cast(type["DataclassInstance"], hint))
    kind = arguments[0] if origin is Annotated else hint
    found = _scalar(value, path, kind)
    for limit in list(limits_of(hint)) or ([Range(0)] if kind in (int, float) else []):
        check(path, found, limit)
    return found


def _scalar(value: object, path: str, kind: Any) -> Any:
    if kind is bool:
        return boolean(value, path)
    if kind is int:
        return integer(value, path)
    return finite_number(value, path) if kind is float else text(value, path)


def _key(name: str, section: Section, kind: Any) -> object:
    """Whole numbers are written as text in the keys of mappings."""
    if kind is str:
        return name
    number = int(name) if name.isascii() and name.isdecimal() and len(name) < 6 else 0
    if number < 1:
        raise InvalidProblem(
            f"{section.path_of(name)} has the key {name!r}; use 1, 2, 4 …, in quotes"
        )
    return number


def _without_none(kinds: tuple[Any, ...]) -> Any:
    (kind,) = (one for one in kinds if one is not NoneType)
    return kind


def _has_default(one: Any) -> bool:
    return one.default is not MISSING or one.default_factory is not MISSING


@functools.cache
def _types_of(kind: "type[DataclassInstance]") -> dict[str, tuple[Any, bool]]:
    """For each field its type, and whether it has a default."""
    hints = get_type_hints(kind, include_extras=True)
    return {one.name: (hints[one.name], _has_default(one)) for one in fields(kind) if one.init}


def _plain(value: Any, *, brief: bool) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return record_to_dict(value, brief=brief)
    if isinstance(value, tuple):
        return [_plain(one, brief=brief) for one in value]
    if isinstance(value, Mapping):
        return {str(name): _plain(one, brief=brief) for name, one in value.items()}
    return value
