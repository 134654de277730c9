"""Records in files: dataclasses by the types of their fields, with the errors of a `Section`."""

import functools
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields, is_dataclass
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

from planner.document import Section, finite_number, integer, wrong_type
from planner.domain.errors import InvalidProblem
from planner.domain.serving_policy import InvalidPolicy
from planner.serialization.placements import one_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Record = TypeVar("Record", bound="DataclassInstance")


def record_to_dict(record: "DataclassInstance") -> dict[str, object]:
    """The section that `record_from` reads."""
    return asdict(record, dict_factory=_with_lists)


def record_from(
    section: Section, kind: type[Record], *, least: Mapping[str, int] | None = None
) -> Record:
    """A key for every field; one whose field has a default may be missing.

    Numbers are finite and 0 or more, whole ones as `least` says of their field. Raises
    InvalidProblem, also for what the class refuses.
    """
    types = _types_of(kind)
    section.allow_only(*types)
    values = {
        key: _value(section, key, wanted, least=(least or {}).get(key, 0))
        for key, (wanted, may_be_missing) in types.items()
        if section.has(key) or not may_be_missing
    }
    try:
        return kind(**values)
    except (InvalidPolicy, InvalidProblem) as error:
        where = "" if section.path in str(error) else f"{section.path}: "
        raise InvalidProblem(f"{where}{error}") from None


def _with_lists(pairs: list[tuple[str, object]]) -> dict[str, object]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in pairs}


@functools.cache
def _types_of(kind: type) -> dict[str, tuple[object, bool]]:
    """By field: its type, and whether it has a default."""
    hints = get_type_hints(kind)
    return {one.name: (hints[one.name], one.default is not MISSING) for one in fields(kind)}


def _value(section: Section, key: str, wanted: object, *, least: int) -> object:
    if get_origin(wanted) is UnionType:
        if section.value(key) is None:
            return None
        (wanted,) = (one for one in get_args(wanted) if one is not NoneType)
    if get_origin(wanted) is tuple:
        inner = get_args(wanted)[0]
        path = section.path_of(key)
        return tuple(
            _item(value, f"{path}[{number}]", inner)
            for number, value in enumerate(section.items(key))
        )
    if get_origin(wanted) is Literal:
        return one_of(section, key, wanted)
    if is_dataclass(wanted):
        return record_from(section.section(key), cast(type["DataclassInstance"], wanted))
    if wanted is bool:
        return section.boolean(key)
    if wanted is int:
        return section.integer(key, minimum=least)
    return section.text(key) if wanted is str else section.number_from_zero(key)


def _item(value: object, path: str, wanted: object) -> object:
    if is_dataclass(wanted):
        return record_from(Section.at(value, path), cast(type["DataclassInstance"], wanted))
    if wanted is int:
        return integer(value, path, minimum=0)
    if wanted is float:
        return finite_number(value, path)
    if not isinstance(value, str):
        raise wrong_type(path, value, "text")
    return value
