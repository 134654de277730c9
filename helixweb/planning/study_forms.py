"""The forms of what is asked about a plan: other machines, what limits it, how it serves."""

from collections.abc import Sequence
from typing import Any

from django import forms
from django.utils.translation import gettext_lazy

from helixweb.common.number_field import NumberField, PlainNumberInput
from helixweb.common.options import form_field
from helixweb.planning import options
from helixweb.planning.models import Simulation
from helixweb.planning.pickers import NodesField, RowsField
from helixweb.planning.rule_rows import AddedRow, LinkRow, UpgradedRow
from helixweb.planning.services.simulating import MAX_BURST_SIZE, MAX_SHARE, MIN_SHARE
from helixweb.planning.what_if import Edits
from planner.domain.cluster import COORDINATOR

PERCENT = 100.0


class WhatIfForm(forms.Form):
    """Changes to a copy of a plan's cluster, and how long to search on it."""

    time_limit_s = form_field(
        options.OPTIONS["time_limit_s"], label=gettext_lazy("Search for (seconds)"), help_text=""
    )

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
        self.fields["added"] = RowsField(
            AddedRow,
            label=gettext_lazy("Nodes that come"),
            choices={"profile": profiles, "region": regions},
        )
        self.fields["upgraded"] = RowsField(
            UpgradedRow,
            label=gettext_lazy("Nodes of another kind"),
            choices={"node": nodes, "becomes": profiles},
        )
        ends = (COORDINATOR, *regions, *nodes)
        self.fields["links"] = RowsField(
            LinkRow,
            label=gettext_lazy("Other links"),
            help_text=gettext_lazy(
                "One direction each. Between two regions: all links that have no row of their own."
            ),
            choices={"source": ends, "target": ends},
        )

    def edits(self) -> Edits:
        """Call after `is_valid`."""
        values = self.cleaned_data
        return Edits(**{name: values[name] for name in ("removed", "added", "upgraded", "links")})

    @property
    def rows(self) -> list[forms.BoundField]:
        """The changes that are rows."""
        return [self[name] for name in ("added", "upgraded", "links")]


class ExplanationForm(forms.Form):
    """How long to replan for every kind of node that one more is added of."""

    search_s = NumberField(
        label=gettext_lazy("Seconds for each kind"),
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
    seed = form_field(options.OPTIONS["seed"], initial=1, help_text="")

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
