"""Fields of forms: nodes chosen from a list, and text that is one thing a line."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy

from planner.domain.rules import InvalidRules

T = TypeVar("T")


def parsed_lines(parse: Callable[[str], T], text: str) -> T:
    """What `parse` makes of `text`. Raises ValidationError with what is wrong with it."""
    try:
        return parse(text)
    except InvalidRules as error:
        raise ValidationError(str(error)) from error


class NodesField(forms.MultipleChoiceField):
    """Nodes of a cluster, chosen from `names`; cleaned to a frozenset."""

    SHOWN = 6  # rows of the list

    def __init__(self, *, label: Any, names: Iterable[str]) -> None:
        choices = [(name, name) for name in names]
        rows = max(2, min(self.SHOWN, len(choices)))
        super().__init__(
            required=False,
            label=label,
            choices=choices,
            widget=forms.SelectMultiple(attrs={"size": rows}),
            help_text=gettext_lazy("Ctrl or ⌘ and a click choose several."),
            error_messages={
                "invalid_choice": gettext_lazy("'%(value)s' is no node here; choose from the list.")
            },
        )

    def clean(self, value: Any) -> frozenset[str]:
        return frozenset(super().clean(value))
