"""Fields of forms and of the REST API for options that a dataclass declares."""

from collections.abc import Mapping
from dataclasses import MISSING, is_dataclass
from typing import Any, ClassVar, TypeVar, get_origin

from django import forms
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy
from rest_framework import serializers

from helixweb.common.number_field import NumberField, ScaledField
from helixweb.common.serializers import StrictFieldsMixin
from planner import OptionField, options_of

T = TypeVar("T")
_REST_FIELDS: dict[Any, Any] = {
    bool: serializers.BooleanField,
    int: serializers.IntegerField,
    float: serializers.FloatField,
    str: serializers.CharField,
}


class OptionsSerializer(StrictFieldsMixin, serializers.Serializer[Any]):
    """The options of the dataclass `of`; fields that a subclass declares take their place."""

    of: ClassVar[type[Any]]

    def get_fields(self) -> dict[str, Any]:
        found = super().get_fields()
        for name, option in options_of(self.of).items():
            found[name] = found.pop(name) if name in found else rest_field(option)
        return found

    def to_representation(self, instance: Mapping[str, Any]) -> dict[str, Any]:
        """`instance` is JSON already; what a row of an earlier release lacks takes its default."""
        shown = {}
        for name, field in self.fields.items():
            value = instance[name] if name in instance else field.get_default()
            is_nested = isinstance(field, OptionsSerializer)
            shown[name] = field.to_representation(value) if is_nested else value
        return shown


def rest_field(option: OptionField, **changes: Any) -> Any:
    """The field of the REST API for an option; `changes` overrule."""
    settings: dict[str, Any] = {"help_text": option.spec.description}
    default = option.default
    if default is not MISSING:
        is_plain = default is None or isinstance(default, bool | int | float | str)
        settings["default"] = default if is_plain else lambda: type(default)(default)
    if option.is_nullable:
        settings["allow_null"] = True
    settings |= changes
    if not option.is_several:
        return _rest_value(option, **settings)
    is_mapping = get_origin(option.kind) is Mapping
    several: Any = serializers.DictField if is_mapping else serializers.ListField
    return several(child=_rest_value(option), **settings)


def _rest_value(option: OptionField, **settings: Any) -> Any:
    spec, kind = option.spec, option.value_kind
    if spec.choices:
        return serializers.ChoiceField(choices=tuple(spec.choices), **settings)
    if kind in (int, float):
        settings |= {"min_value": spec.least, "max_value": spec.most}
    return _REST_FIELDS[kind](**settings)


def form_field(
    option: OptionField, scaled: type[ScaledField] | None = None, **changes: Any
) -> forms.Field:
    """An input for a flag, a word or a number; `changes` overrule. Blank: the option's default.

    People write the number in the unit of a `scaled` field.
    """
    spec = option.spec
    label, unit = gettext_lazy(spec.label), gettext_lazy(spec.unit)
    with_unit = format_lazy(gettext_lazy("{label} ({unit})"), label=label, unit=unit)
    settings: dict[str, Any] = {
        "label": with_unit if spec.unit else label,
        "help_text": gettext_lazy(spec.help) if spec.help else "",
        "required": not option.is_nullable and option.kind is not bool,
    }
    if option.default is not MISSING:
        settings["initial"] = option.default
    kind: type[forms.Field] = forms.BooleanField
    if spec.choices:
        kind = forms.ChoiceField
        settings["choices"] = [(word, gettext_lazy(text)) for word, text in spec.choices.items()]
    elif option.kind is not bool:
        kind = scaled or (forms.IntegerField if option.value_kind is int else NumberField)
        limits = {"min_value": spec.least, "max_value": spec.most}
        settings |= {
            name: limit / scaled.scale if scaled and limit else limit
            for name, limit in limits.items()
        }
    return kind(**(settings | changes))


def initial_of(options: Any) -> dict[str, Any]:
    """Initial values of a form for the options; nested options are flattened."""
    found: dict[str, Any] = {}
    for name in options_of(type(options)):
        value = getattr(options, name)
        found |= initial_of(value) if is_dataclass(value) else {name: value}
    return found


def options_from(declaration: type[T], values: Mapping[str, Any]) -> T:
    """The options with the cleaned values of a form; what is blank or not there: the default.

    Raises what the declaration raises.
    """
    given = {}
    for name, option in options_of(declaration).items():
        if isinstance(option.kind, type) and is_dataclass(option.kind):
            given[name] = options_from(option.kind, values)
        elif values.get(name) not in (None, ""):
            given[name] = values[name]
    return declaration(**given)
