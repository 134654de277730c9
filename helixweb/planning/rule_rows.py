"""Rows of forms: rules about single nodes, and changes to a cluster."""

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy

from helixweb.common.number_field import NumberField
from helixweb.common.options import form_field
from helixweb.planning.pickers import Row
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

    unique = ("node",)
    collect = dict
    node = forms.ChoiceField(label=gettext_lazy("Node"))
    first = form_field(options_of(LayerRange)["first"])
    end = form_field(options_of(LayerRange)["end"])

    def made(self) -> tuple[str, LayerRange]:
        node, first, end = self.cleaned_data.values()
        return node, LayerRange(first=first, end=end)


class LimitRow(Row):
    """A node, and how many layers it may hold."""

    unique = ("node",)
    collect = dict
    node = forms.ChoiceField(label=gettext_lazy("Node"))
    layers = form_field(RULES["max_layers_of"], label=gettext_lazy("Most layers"), initial=None)


class AddedRow(Row):
    """So many nodes of a profile."""

    count = forms.IntegerField(label=gettext_lazy("How many"), min_value=1, max_value=MOST_ADDED)
    profile = forms.ChoiceField(label=gettext_lazy("Of profile"))
    region = forms.ChoiceField(label=gettext_lazy("In region"))

    def made(self) -> AddedNodes:
        return AddedNodes(**self.cleaned_data)


class UpgradedRow(Row):
    """A node, and its other profile."""

    unique = ("node",)
    collect = dict
    node = forms.ChoiceField(label=gettext_lazy("Node"))
    becomes = forms.ChoiceField(label=gettext_lazy("Becomes"))


class LinkRow(Row):
    """A directed link between two nodes or two regions."""

    unique = ("source", "target")
    source = forms.ChoiceField(label=gettext_lazy("From"))
    target = forms.ChoiceField(label=gettext_lazy("To"))
    gbit_per_s = NumberField(label=gettext_lazy("Gbit/s"), min_value=0)
    latency_ms = NumberField(label=gettext_lazy("Latency (ms)"), min_value=0)

    def made(self) -> Link:
        source, target, gbit_per_s, latency_ms = self.cleaned_data.values()
        return Link(
            source=source,
            target=target,
            bandwidth_bytes_per_s=bytes_per_s_from_gbit_per_s(gbit_per_s),
            latency_s=latency_ms / MS_PER_S,
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
