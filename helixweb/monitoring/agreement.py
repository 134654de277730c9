"""Whether what was predicted of a deployment holds, and which assumptions do not. Pure.

Decides from numbers alone; `predictions.py` gathers them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from helixweb.charts.quantities import bit_rate_text

# Measured steps spread; by less than this, and by less than twice its standard error, a node is as
# its profile says.
STEP_OFF = 0.15
LENGTH_OFF = 0.3
LINK_OFF = 0.2
# What the benchmark of predictions asks of them.
THROUGHPUT_OFF = 0.15
LATENCY_OFF = 0.2
_SURE = 2.0


class Quantity(StrEnum):
    """A quantity that is predicted and measured."""

    OUTPUT = gettext_noop("output tokens/s")
    TTFT = gettext_noop("TTFT, median")
    TPOT = gettext_noop("TPOT, median")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A number that was predicted, or that the plan counts on, and the same measured; None: not
    known. `worse`: above 0 if more is, below if less is, 0 if both are. Without `is_sure` it was
    not seen to be less.
    """

    name: str
    predicted: float | None
    measured: float | None
    tolerance: float
    worse: int = 0
    is_sure: bool = True

    @property
    def off(self) -> float | None:
        """(measured - predicted) / predicted; None: unknown."""
        if not self.predicted or self.measured is None:
            return None
        return self.measured / self.predicted - 1

    @property
    def off_text(self) -> str:
        """+12 %, empty where it is not known."""
        return "" if self.off is None else f"{self.off:+.0%}"

    @property
    def holds(self) -> bool | None:
        """True also where it is better than predicted."""
        if self.off is None or (self.off < 0 and not self.is_sure):
            return None
        return (self.worse * self.off if self.worse else abs(self.off)) <= self.tolerance


def figure(quantity: Quantity, predicted: float | None, measured: float | None) -> Compared:
    """Tokens/s, or seconds, at the load there was."""
    is_rate = quantity is Quantity.OUTPUT
    return Compared(
        name=quantity,
        predicted=predicted,
        measured=measured,
        tolerance=THROUGHPUT_OFF if is_rate else LATENCY_OFF,
        worse=-1 if is_rate else 1,
    )


def mean_tokens(phase: str, planned: float, measured: float | None) -> Compared:
    """Tokens of requests that a plan was computed for, and of those that came; None: none came."""
    return Compared(name=phase, predicted=planned, measured=measured, tolerance=LENGTH_OFF)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSteps(Compared):
    """Milliseconds of a node's mean step by its profile, and as measured; None: it did none lately.

    `error` is one standard error of their ratio. `estimated`: its profile is none that was
    measured.
    """

    profile: str
    error: float | None
    estimated: bool
    tolerance: float = STEP_OFF

    @property
    def off_text(self) -> str:
        """`off` as text with twice its standard error."""
        if self.off is None or self.error is None:
            return ""
        return f"{self.off:+.0%} ± {_SURE * self.error:.0%}"

    @property
    def holds(self) -> bool | None:
        if self.off is None or self.error is None:
            return None
        return abs(self.off) <= max(STEP_OFF, _SURE * self.error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """An assumption of the plan that no longer holds, and the remedy. `node`: where it fails."""

    text: str
    advice: str
    node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Predicted against measured. `running`: requests at once on average while there was any,
    `predicted_running`: as many were simulated. None: none ran, nothing is predicted."""

    running: float | None
    figures: Sequence[Compared]
    nodes: Sequence[NodeSteps]
    links: Sequence[Compared]
    lengths: Sequence[Compared]
    predicted_running: float | None = None

    @property
    def broken(self) -> tuple[Broken, ...]:
        """Broken assumptions, most important first; the last if nothing explains a difference."""
        found = (*self._slow_nodes(), *self._links(), *self._lengths(), *self._estimates())
        off = [_(each.name) for each in self.figures if each.holds is False]
        if found or not off:
            return found
        unexplained = Broken(
            text=_("What was measured of %(names)s is not what was predicted.")
            % {"names": ", ".join(off)},
            advice=_(
                "None of the assumptions that are measured explains it; the page of a slow request "
                "says where its time went."
            ),
        )
        return (unexplained,)

    def _slow_nodes(self) -> Iterator[Broken]:
        off = {node.name: node.off or 0.0 for node in self.nodes if node.holds is False}
        for name, share in sorted(off.items(), key=lambda item: -abs(item[1])):
            text = (
                _("Steps of %(name)s take %(share)s longer than its profile says.")
                if share > 0
                else _("Steps of %(name)s take %(share)s less than its profile says.")
            )
            yield Broken(
                node=name,
                text=text % {"name": name, "share": f"{abs(share):.0%}"},
                advice=_(
                    "Look for other work on that machine; else measure the node again, or use the "
                    "profile refined from its traffic, and compute again."
                ),
            )

    def _links(self) -> Iterator[Broken]:
        for link in self.links:
            if link.holds is False:
                yield Broken(
                    text=_("The link %(name)s does %(rate)s; the plan counts on %(counted)s.")
                    % {
                        "name": link.name,
                        "rate": bit_rate_text(link.measured or 0.0),
                        "counted": bit_rate_text(link.predicted or 0.0),
                    },
                    advice=_("Keep the measured rates on the network's page, and compute again."),
                )

    def _lengths(self) -> Iterator[Broken]:
        for mean in self.lengths:
            if mean.holds is False:
                text = (
                    _("Prompts have %(measured)s tokens on average; the plan is for %(planned)s.")
                    if mean.name == "prompt"
                    else _(
                        "Answers have %(measured)s tokens on average; the plan is for %(planned)s."
                    )
                )
                yield Broken(
                    text=text
                    % {"measured": f"{mean.measured:.0f}", "planned": f"{mean.predicted:.0f}"},
                    advice=_("Change the lengths on the cluster's page, and compute again."),
                )

    def _estimates(self) -> Iterator[Broken]:
        names = [node.name for node in self.nodes if node.estimated]
        if names:
            yield Broken(
                text=_("%(names)s were not measured: the plan uses estimates for them.")
                % {"names": ", ".join(names)},
                advice=_("Measure each on its page, and compute again."),
            )
