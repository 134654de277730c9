"""The forms of what is asked about a plan: other machines, what limits it, how it serves."""

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy

from helixweb.common.number_field import NumberField, PlainNumberInput
from helixweb.planning import options
from helixweb.planning.line_fields import parsed_lines
from helixweb.planning.models import Simulation
from helixweb.planning.rule_lines import (
    added_from_lines,
    links_from_lines,
    names_from_lines,
    upgrades_from_lines,
)
from helixweb.planning.services.simulating import MAX_BURST_SIZE, MAX_SHARE, MIN_SHARE
from helixweb.planning.what_if import AddedNodes, Edits
from planner.domain.cluster import Link

PERCENT = 100.0


class WhatIfForm(forms.Form):
    """Changes to a copy of a plan's cluster, and how long to search on it."""

    removed = forms.CharField(
        required=False,
        label=gettext_lazy("Nodes that go"),
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text=gettext_lazy("One name a line."),
    )
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

    def clean_added(self) -> tuple[AddedNodes, ...]:
        return parsed_lines(added_from_lines, self.cleaned_data["added"])

    def clean_upgraded(self) -> dict[str, str]:
        return parsed_lines(upgrades_from_lines, self.cleaned_data["upgraded"])

    def clean_links(self) -> tuple[Link, ...]:
        return parsed_lines(links_from_lines, self.cleaned_data["links"])

    def edits(self) -> Edits:
        """Call after `is_valid`."""
        values = self.cleaned_data
        return Edits(
            removed=names_from_lines(values["removed"]),
            added=values["added"],
            upgraded=values["upgraded"],
            links=values["links"],
        )


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
