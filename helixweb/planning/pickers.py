"""Fields of forms that are chosen from lists: nodes, and rows of several columns: rules about
single nodes, and changes to a cluster."""

from collections.abc import Callable, Iterable, Mapping
from itertools import zip_longest
from typing import Any, ClassVar

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from helixweb.common.long_select import LongSelect, LongSelectMultiple
from helixweb.common.number_field import GbitPerSField, MillisecondsField
from helixweb.common.options import form_field
from helixweb.planning.what_if import AddedNodes
from planner import LayerRange, Link, PlacementRules, PlannerError, options_of


class NodesField(forms.MultipleChoiceField):
    """Nodes of a cluster, chosen from `names`; cleaned to a frozenset."""

    SHOWN = 6  # rows of the list

    def __init__(self, *, label: Any, names: Iterable[str], help_text: Any = "") -> None:
        choices = [(name, name) for name in names]
        rows = max(2, min(self.SHOWN, len(choices)))
        super().__init__(
            required=False,
            label=label,
            choices=choices,
            widget=LongSelectMultiple(attrs={"size": rows}),
            help_text=help_text or gettext_lazy("Ctrl or ⌘ and a click choose several."),
            error_messages={
                "invalid_choice": gettext_lazy("'%(value)s' is no node here; choose from the list.")
            },
        )

    def clean(self, value: Any) -> frozenset[str]:
        return frozenset(super().clean(value))


class ListField(forms.ChoiceField):
    """One of a list as long as the cluster has nodes."""

    widget = LongSelect


class Row(forms.Form):
    """One row of a RowsField. Users fill in all of its columns, or none."""

    use_required_attribute = False
    # No two rows may have the same values in these columns.
    unique: ClassVar[tuple[str, ...]] = ()
    # Turns what the rows say into the cleaned value of the field.
    collect: ClassVar[Callable[[Iterable[Any]], Any]] = tuple

    def __init__(self, *args: Any, choices: Mapping[str, Iterable[str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, values in choices.items():
            listed = [("", "—"), *((value, value) for value in dict.fromkeys(values))]
            self.fields[name].choices = listed  # type: ignore[attr-defined]
        for field in self.fields.values():
            field.error_messages["required"] = _("Choose this too, or leave the whole row blank.")

    def made(self) -> Any:
        """The object of the row, from its values in order. May raise PlannerError."""
        return tuple(self.cleaned_data.values())

    def clean(self) -> dict[str, Any]:
        if self.has_changed() and not self.errors:
            try:
                self.made()
            except PlannerError as error:
                raise ValidationError(str(error)) from error
        return self.cleaned_data


class RowsInput(forms.Widget):
    """A table of inputs; those of a column have the same name in every row. See `_rows.html`.

    The value is a list of {column: text}.
    """

    def __init__(self, columns: Iterable[str]) -> None:
        super().__init__()
        self.columns = tuple(columns)

    def value_from_datadict(self, data: Any, files: Any, name: str) -> list[dict[str, str]]:
        cells = [data.getlist(f"{name}-{column}") for column in self.columns]
        return [
            dict(zip(self.columns, row, strict=True)) for row in zip_longest(*cells, fillvalue="")
        ]


class RowsField(forms.Field):
    """Things of several columns, a `row` each, as many as wanted.

    `choices` is what is listed in some of the columns.
    """

    def __init__(self, row: type[Row], *, choices: Mapping[str, Iterable[str]], **settings: Any):
        super().__init__(required=False, widget=RowsInput(row.base_fields), **settings)
        self._row = row
        self._choices = {name: tuple(values) for name, values in choices.items()}

    def clean(self, value: Any) -> Any:
        rows = self.checked(value, prefix="row")
        if any(row.errors for row in rows):
            raise ValidationError(_("Correct the rows that have an error."))
        return self._row.collect(row.made() for row in rows)

    def checked(self, values: Iterable[Mapping[str, str]], *, prefix: str) -> list[Row]:
        """The rows that are not blank, with what is wrong with each."""
        rows: list[Row] = []
        taken: set[tuple[Any, ...]] = set()
        for value in values:
            data = {f"{prefix}-{column}": text for column, text in value.items()}
            row = self.row(data, prefix=prefix, number=len(rows))
            if not row.has_changed():
                continue
            rows.append(row)
            if not (row.is_valid() and row.unique):
                continue
            key = tuple(row.cleaned_data[column] for column in row.unique)
            if key in taken:
                name = " > ".join(map(str, key))
                error = _("%(name)s has two rows; keep one.") % {"name": name}
                row.add_error(row.unique[0], error)
            taken.add(key)
        return rows

    def row(self, data: Mapping[str, str] | None = None, *, number: int, **settings: Any) -> Row:
        """Row `number` of the page, from 0."""
        return self._row(
            data,
            auto_id=f"id_{number}_%s",
            empty_permitted=True,
            choices=self._choices,
            **settings,
        )

    def get_bound_field(self, form: Any, field_name: str) -> "BoundRows":
        return BoundRows(form, self, field_name)


class BoundRows(forms.BoundField):
    """The rows of a form, for `_rows.html`."""

    field: RowsField

    @property
    def rows(self) -> list[Row]:
        """Rows that are filled in, then a blank one to add one without a script."""
        name = self.html_name
        if self.form.is_bound:
            rows = self.field.checked(self.data, prefix=name)
        else:
            rows = [
                self.field.row(prefix=name, number=number, initial=values)
                for number, values in enumerate(self.initial or ())
            ]
        return [*rows, self.field.row(prefix=name, number=len(rows))]


class PinRow(Row):
    """A node, and the layers that it holds."""

    unique = ("node",)
    collect = dict
    node = ListField()
    first = form_field(options_of(LayerRange)["first"])
    end = form_field(options_of(LayerRange)["end"])

    def made(self) -> tuple[str, LayerRange]:
        node, first, end = self.cleaned_data.values()
        return node, LayerRange(first=first, end=end)


class LimitRow(Row):
    """A node, and how many layers it may hold."""

    unique = ("node",)
    collect = dict
    node = ListField()
    layers = form_field(
        options_of(PlacementRules)["max_layers_of"],
        label=gettext_lazy("Most layers"),
        initial=None,
    )


class AddedRow(Row):
    """A row that adds a number of nodes of a profile."""

    count = form_field(options_of(AddedNodes)["count"])
    profile = ListField(label=gettext_lazy("Of profile"))
    region = ListField(label=gettext_lazy("In region"))

    def made(self) -> AddedNodes:
        return AddedNodes(**self.cleaned_data)


class UpgradedRow(Row):
    """A node, and its other profile."""

    unique = ("node",)
    collect = dict
    node = ListField()
    becomes = ListField()


class LinkRow(Row):
    """A directed link between two nodes or two regions."""

    unique = ("source", "target")
    source = ListField(label=gettext_lazy("From"))
    target = ListField(label=gettext_lazy("To"))
    bandwidth_bytes_per_s = GbitPerSField(label=gettext_lazy("Gbit/s"), min_value=0)
    latency_s = MillisecondsField(label=gettext_lazy("Latency (ms)"), min_value=0)

    def made(self) -> Link:
        return Link(**self.cleaned_data)
