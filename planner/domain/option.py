"""Options declared once: forms, the REST API and commands are made from these declarations."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, MISSING, Field, dataclass, field, fields
from functools import cache
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints


@dataclass(frozen=True, slots=True)
class Option:
    """Metadata of a dataclass field: `seed: Annotated[int, Option("Seed", least=0)] = 0`.

    Forms, the REST API and the site's commands refuse numbers outside `least` to `most` (of a
    mapping: its values). The dataclass does not: stored rows may hold others. `choices` are words
    and their labels.
    """

    label: str
    help: str = ""
    _: KW_ONLY
    unit: str = ""
    least: float | None = None
    most: float | None = None
    choices: Mapping[str, str] = field(default_factory=dict)

    @property
    def description(self) -> str:
        """Label, unit and help."""
        label = f"{self.label} ({self.unit})" if self.unit else self.label
        return f"{label}. {self.help}" if self.help else label


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionField:
    """A field that is an option. `default` is MISSING if it must be given."""

    name: str
    kind: Any
    is_nullable: bool
    default: Any
    spec: Option

    @property
    def value_kind(self) -> Any:
        """The type of a single value: of a collection, that of its items."""
        if get_origin(self.kind) is Mapping:
            return get_args(self.kind)[1]
        return get_args(self.kind)[0] if self.is_several else self.kind

    @property
    def is_several(self) -> bool:
        return get_origin(self.kind) in (tuple, frozenset, Mapping)


def options_of(declaration: Any) -> Mapping[str, OptionField]:
    """The fields of a dataclass that are options, by name, in their order, inherited ones last."""
    return _options_of(declaration)


@cache
def _options_of(declaration: Any) -> Mapping[str, OptionField]:
    hints = get_type_hints(declaration, include_extras=True)
    own = {name: place for place, name in enumerate(vars(declaration).get("__annotations__", ()))}
    return {
        one.name: _declared(one, hints[one.name])
        for one in sorted(fields(declaration), key=lambda one: own.get(one.name, len(own)))
        if get_origin(hints[one.name]) is Annotated
    }


def _declared(one: "Field[Any]", hint: Any) -> OptionField:
    given, *notes = get_args(hint)
    (spec,) = (note for note in notes if isinstance(note, Option))
    is_nullable = NoneType in get_args(given)
    kinds = [_plain(kind) for kind in get_args(given) if kind is not NoneType]
    return OptionField(
        name=one.name,
        kind=kinds[0] if is_nullable else given,
        is_nullable=is_nullable,
        default=one.default if one.default_factory is MISSING else one.default_factory(),
        spec=spec,
    )


def _plain(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind
