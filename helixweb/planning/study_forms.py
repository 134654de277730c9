"""The forms of what is asked about a plan: other machines, what limits it, how it serves."""

from collections.abc import Sequence
from typing import Any

from django import forms
from django.utils.translation import gettext, gettext_lazy

from helixweb.common.number_field import NumberField, PlainNumberInput
from helixweb.planning import options
from helixweb.planning.line_fields import NodesField, parsed_lines
from helixweb.planning.models import Simulation
from helixweb.planning.rule_lines import (
    MS_PER_S,
    added_from_lines,
    links_from_lines,
    upgrades_from_lines,
)
from helixweb.planning.services.simulating import MAX_BURST_SIZE, MAX_SHARE, MIN_SHARE
from helixweb.planning.what_if import AddedNodes, Edits
from planner.domain.cluster import COORDINATOR, Link
from planner.units import bytes_per_s_from_gbit_per_s

PERCENT = 100.0
MOST_ADDED = 9999


class WhatIfForm(forms.Form):
    """Changes to a copy of a plan's cluster, and how long to search on it.

    One change of each kind is chosen; more can be typed, a line each.
    """

    count = forms.IntegerField(
        required=False, label=gettext_lazy("How many"), min_value=1, max_value=MOST_ADDED
    )
    profile = forms.ChoiceField(required=False, label=gettext_lazy("Of profile"))
    region = forms.ChoiceField(required=False, label=gettext_lazy("In region"))
    node = forms.ChoiceField(required=False, label=gettext_lazy("Node"))
    becomes = forms.ChoiceField(required=False, label=gettext_lazy("Becomes"))
    source = forms.ChoiceField(required=False, label=gettext_lazy("From"))
    target = forms.ChoiceField(required=False, label=gettext_lazy("To"))
    gbit_per_s = NumberField(required=False, label=gettext_lazy("Gbit/s"), min_value=0)
    latency_ms = NumberField(required=False, label=gettext_lazy("Latency (ms)"), min_value=0)
    added = forms.CharField(
        required=False,
        label=gettext_lazy("Nodes that come"),
        widget=forms.Textarea(attrs={"rows": 3, "placeholder": "2 x T4 in eu"}),
        help_text=gettext_lazy("COUNT x PROFILE in REGION a line."),
    )
    upgraded = forms.CharField(
        required=False,
        label=gettext_lazy("Nodes of another kind"),
        widget=forms.Textarea(attrs={"rows": 3, "placeholder": "t4-1=A100"}),
        help_text=gettext_lazy("NODE=PROFILE a line."),
    )
    links = forms.CharField(
        required=False,
        label=gettext_lazy("Other links"),
        widget=forms.Textarea(attrs={"rows": 3, "placeholder": "eu > us = 1 Gbit/s, 80 ms"}),
        help_text=gettext_lazy(
            "FROM > TO = NUMBER Gbit/s, NUMBER ms a line, one direction each; nodes, "
            "or regions for all links between them that have no line of their own."
        ),
    )
    time_limit_s = NumberField(
        label=gettext_lazy("Search for (seconds)"),
        min_value=options.MIN_TIME_LIMIT_S,
        max_value=options.MAX_TIME_LIMIT_S,
        initial=options.DEFAULTS.time_limit_s,
    )

    COMING = ("count", "profile", "region")
    CHANGING = ("node", "becomes")
    LINKING = ("source", "target", "gbit_per_s", "latency_ms")
    TYPED = ("added", "upgraded", "links")

    def __init__(
        self,
        *args: Any,
        nodes: Sequence[str],
        profiles: Sequence[str],
        regions: Sequence[str],
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.fields["removed"] = NodesField(label=gettext_lazy("Nodes that go"), names=nodes)
        ends = [COORDINATOR, *regions, *nodes]
        for name, values in (
            ("profile", profiles), ("region", regions), ("node", nodes), ("becomes", profiles),
            ("source", ends), ("target", ends),
        ):  # fmt: skip
            choices = [("", "—"), *((value, value) for value in dict.fromkeys(values))]
            self.fields[name].choices = choices  # type: ignore[attr-defined]

    def clean_added(self) -> tuple[AddedNodes, ...]:
        return parsed_lines(added_from_lines, self.cleaned_data["added"])

    def clean_upgraded(self) -> dict[str, str]:
        return parsed_lines(upgrades_from_lines, self.cleaned_data["upgraded"])

    def clean_links(self) -> tuple[Link, ...]:
        return parsed_lines(links_from_lines, self.cleaned_data["links"])

    def clean(self) -> dict[str, Any]:
        """Each kind of change is chosen as a whole, or not at all."""
        values = self.cleaned_data
        for names in (self.COMING, self.CHANGING, self.LINKING):
            missing = [name for name in names if values.get(name) in (None, "")]
            if len(missing) == len(names):
                continue
            for name in missing:
                if name not in self.errors:
                    self.add_error(name, gettext("Choose this too, or leave the whole line blank."))
        return values

    def edits(self) -> Edits:
        """Call after `is_valid`. Raises InvalidProblem for a link that cannot be."""
        values = self.cleaned_data
        added, upgraded, links = values["added"], values["upgraded"], values["links"]
        if values["count"]:
            some = AddedNodes(
                count=values["count"], profile=values["profile"], region=values["region"]
            )
            added = (*added, some)
        if values["node"]:
            upgraded = {**upgraded, values["node"]: values["becomes"]}
        if values["source"]:
            link = Link(
                source=values["source"],
                target=values["target"],
                bandwidth_bytes_per_s=bytes_per_s_from_gbit_per_s(values["gbit_per_s"]),
                latency_s=values["latency_ms"] / MS_PER_S,
            )
            links = (*links, link)
        return Edits(removed=values["removed"], added=added, upgraded=upgraded, links=links)

    def row(self, names: Sequence[str]) -> list[forms.BoundField]:
        return [self[name] for name in names]

    @property
    def rows(self) -> list[tuple[str, list[forms.BoundField]]]:
        """What is chosen, by a title each."""
        return [
            (gettext("Nodes that come"), self.row(self.COMING)),
            (gettext("A node of another kind"), self.row(self.CHANGING)),
            (gettext("Another link, one direction"), self.row(self.LINKING)),
        ]

    @property
    def typed(self) -> list[forms.BoundField]:
        """For several changes of a kind."""
        return self.row(self.TYPED)

    @property
    def has_typed(self) -> bool:
        return any(self[name].value() or self[name].errors for name in self.TYPED)


class ExplanationForm(forms.Form):
    """How long to replan for every kind of node that one more is added of."""

    search_s = NumberField(
        min_value=0,
        max_value=options.MAX_EXPLANATION_SEARCH_S,
        initial=2,
        widget=PlainNumberInput(
            attrs={"aria-label": gettext_lazy("Seconds for each kind"), "class": "short"}
        ),
    )


class SimulationForm(forms.Form):
    """What to serve a plan in the simulator."""

    workload = forms.ChoiceField(
        choices=Simulation.Workload.choices, initial=Simulation.Workload.POISSON
    )
    share_percent = NumberField(
        required=False,
        label=gettext_lazy("Requests at (percent of the peak)"),
        min_value=MIN_SHARE * PERCENT,
        max_value=MAX_SHARE * PERCENT,
        initial=75,
        help_text=gettext_lazy("The peak is what the plan serves when requests always wait."),
    )
    burst_size = forms.IntegerField(
        required=False,
        label=gettext_lazy("Requests in a burst"),
        min_value=1,
        max_value=MAX_BURST_SIZE,
        initial=10,
    )
    policy = forms.ChoiceField(
        label=gettext_lazy("Batches and links as in"),
        choices=Simulation.Policy.choices,
        initial=Simulation.Policy.RUNTIME,
    )
    seed = forms.IntegerField(min_value=0, max_value=options.MAX_SEED, initial=1)

    def request(self) -> dict[str, Any]:
        """What `services.start_simulation` wants; call after `is_valid`."""
        values = self.cleaned_data
        workload, percent = values["workload"], values["share_percent"]
        is_online = workload != Simulation.Workload.BACKLOG
        is_bursts = workload == Simulation.Workload.BURSTS
        return {
            "workload": workload,
            "share": percent / PERCENT if is_online and percent is not None else None,
            "burst_size": values["burst_size"] if is_bursts else None,
            "policy": values["policy"],
            "seed": values["seed"],
        }
