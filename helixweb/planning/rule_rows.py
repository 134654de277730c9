"""Rows of forms: rules about single nodes, and changes to a cluster."""

from collections.abc import Iterable, Mapping
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy

from helixweb.common.number_field import NumberField
from helixweb.common.options import form_field
from helixweb.planning.pickers import Row, RowsField
from helixweb.planning.what_if import AddedNodes
from planner.domain.cluster import Link
from planner.domain.option import options_of
from planner.domain.placement import LayerRange
from planner.domain.rules import PlacementRules
from planner.units import bytes_per_s_from_gbit_per_s

RULES = options_of(PlacementRules)
MS_PER_S = 1e3
MOST_ADDED = 9999


class PinRow(Row):
    """A node, and the layers that it holds."""

    node = forms.ChoiceField(label=gettext_lazy("Node"))
    first = form_field(options_of(LayerRange)["first"])
    end = form_field(options_of(LayerRange)["end"])


class LimitRow(Row):
    """A node, and how many layers it may hold."""

    node = forms.ChoiceField(label=gettext_lazy("Node"))
    layers = form_field(RULES["max_layers_of"], label=gettext_lazy("Most layers"), initial=None)


class AddedRow(Row):
    """So many nodes of a profile."""

    count = forms.IntegerField(label=gettext_lazy("How many"), min_value=1, max_value=MOST_ADDED)
    profile = forms.ChoiceField(label=gettext_lazy("Of profile"))
    region = forms.ChoiceField(label=gettext_lazy("In region"))


class UpgradedRow(Row):
    """A node, and its other profile."""

    node = forms.ChoiceField(label=gettext_lazy("Node"))
    becomes = forms.ChoiceField(label=gettext_lazy("Becomes"))


class LinkRow(Row):
    """A directed link between two nodes or two regions."""

    source = forms.ChoiceField(label=gettext_lazy("From"))
    target = forms.ChoiceField(label=gettext_lazy("To"))
    gbit_per_s = NumberField(label=gettext_lazy("Gbit/s"), min_value=0)
    latency_ms = NumberField(label=gettext_lazy("Latency (ms)"), min_value=0)


def pins_field(nodes: Iterable[str]) -> RowsField:
    """Cleaned to {node: LayerRange}."""
    return RowsField(
        PinRow,
        label=gettext_lazy(RULES["pinned"].spec.label),
        help_text=gettext_lazy(RULES["pinned"].spec.help),
        choices={"node": tuple(nodes)},
        unique=("node",),
        make=lambda row: (row["node"], LayerRange(first=row["first"], end=row["end"])),
        collect=dict,
    )


def limits_field(nodes: Iterable[str]) -> RowsField:
    """Cleaned to {node: layers}."""
    return RowsField(
        LimitRow,
        label=gettext_lazy(RULES["max_layers_of"].spec.label),
        choices={"node": tuple(nodes)},
        unique=("node",),
        make=lambda row: (row["node"], row["layers"]),
        collect=dict,
    )


def added_field(*, profiles: Iterable[str], regions: Iterable[str]) -> RowsField:
    """Cleaned to AddedNodes."""
    return RowsField(
        AddedRow,
        label=gettext_lazy("Nodes that come"),
        choices={"profile": tuple(profiles), "region": tuple(regions)},
        make=lambda row: AddedNodes(**row),
    )


def upgraded_field(*, nodes: Iterable[str], profiles: Iterable[str]) -> RowsField:
    """Cleaned to {node: profile}."""
    return RowsField(
        UpgradedRow,
        label=gettext_lazy("Nodes of another kind"),
        choices={"node": tuple(nodes), "becomes": tuple(profiles)},
        unique=("node",),
        make=lambda row: (row["node"], row["becomes"]),
        collect=dict,
    )


def links_field(ends: Iterable[str]) -> RowsField:
    """Cleaned to Links."""
    known = tuple(ends)
    return RowsField(
        LinkRow,
        label=gettext_lazy("Other links"),
        help_text=gettext_lazy(
            "One direction each. Between two regions: all links that have no row of their own."
        ),
        choices={"source": known, "target": known},
        unique=("source", "target"),
        make=_link,
    )


def rows_of(rules: PlacementRules) -> dict[str, list[dict[str, Any]]]:
    """The initial rows of the fields of pins and limits that say the same as `rules`."""
    return {
        "pinned": [
            {"node": name, "first": held.first, "end": held.end}
            for name, held in sorted(rules.pinned.items())
        ],
        "max_layers_of": [
            {"node": name, "layers": layers} for name, layers in sorted(rules.max_layers_of.items())
        ],
    }


def _link(row: Mapping[str, Any]) -> Link:
    return Link(
        source=row["source"],
        target=row["target"],
        bandwidth_bytes_per_s=bytes_per_s_from_gbit_per_s(row["gbit_per_s"]),
        latency_s=row["latency_ms"] / MS_PER_S,
    )
