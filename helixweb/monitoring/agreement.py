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


def share_text(share: float | None) -> str:
    """+12 %, empty where it is not known."""
    return "" if share is None else f"{share:+.0%}"


class Quantity(StrEnum):
    """What is predicted and measured."""

    OUTPUT = gettext_noop("output tokens/s")
    TTFT = gettext_noop("TTFT, median")
    TPOT = gettext_noop("TPOT, median")


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A quantity as predicted for the load there was, and as measured; None: not known.

    Tokens/s, or seconds.
    """

    quantity: Quantity
    predicted: float | None
    measured: float | None

    @property
    def off(self) -> float | None:
        """How far what was measured is above what was predicted, a share of that."""
        if not self.predicted or self.measured is None:
            return None
        return self.measured / self.predicted - 1

    @property
    def off_text(self) -> str:
        return share_text(self.off)

    @property
    def is_rate(self) -> bool:
        """Else it is a time."""
        return self.quantity is Quantity.OUTPUT

    @property
    def limit(self) -> float:
        return THROUGHPUT_OFF if self.quantity is Quantity.OUTPUT else LATENCY_OFF

    @property
    def holds(self) -> bool | None:
        """True also where it serves better than predicted: more tokens/s, shorter times."""
        if self.off is None:
            return None
        return (-self.off if self.is_rate else self.off) <= self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSteps:
    """How much longer a node's steps take than by its profile; `error` is one standard error.

    Milliseconds of a mean step; None: it did none lately. `estimated`: its profile is none that was
    measured.
    """

    name: str
    profile: str
    predicted_ms: float | None
    measured_ms: float | None
    longer: float | None
    error: float | None
    estimated: bool

    @property
    def longer_text(self) -> str:
        """With twice its standard error."""
        if self.longer is None or self.error is None:
            return ""
        return f"{self.longer:+.0%} ± {_SURE * self.error:.0%}"

    @property
    def holds(self) -> bool | None:
        if self.longer is None or self.error is None:
            return None
        return abs(self.longer) <= max(STEP_OFF, _SURE * self.error)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkRate:
    """Bytes/s that the plan counts on, and those that its sender measures.

    `seen_full`: it was busy enough to tell that it does no more.
    """

    name: str
    counted_bytes_per_s: float
    measured_bytes_per_s: float
    seen_full: bool

    @property
    def off(self) -> float:
        return self.measured_bytes_per_s / self.counted_bytes_per_s - 1

    @property
    def off_text(self) -> str:
        return share_text(self.off)

    @property
    def holds(self) -> bool | None:
        if not self.seen_full and self.off < 0:
            return None
        return self.off >= -LINK_OFF


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanTokens:
    """Tokens of requests that a plan was computed for, and of those that came; None: none came."""

    phase: str
    planned: float
    measured: float | None

    @property
    def off(self) -> float | None:
        return None if self.measured is None else self.measured / self.planned - 1

    @property
    def off_text(self) -> str:
        return share_text(self.off)

    @property
    def holds(self) -> bool | None:
        return None if self.off is None else abs(self.off) <= LENGTH_OFF


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """An assumption that no longer holds: what is so, and what to do. `node`: whose it is."""

    text: str
    advice: str
    node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Predicted against measured. `running`: requests at once on average while there was any,
    `predicted_running`: as many were simulated. None: none ran, nothing is predicted."""

    running: float | None
    figures: Sequence[Figure]
    nodes: Sequence[NodeSteps]
    links: Sequence[LinkRate]
    lengths: Sequence[MeanTokens]
    predicted_running: float | None = None

    @property
    def broken(self) -> tuple[Broken, ...]:
        """Of most to least consequence; the last says when nothing explains what differs."""
        found = (*self._slow_nodes(), *self._links(), *self._lengths(), *self._estimates())
        if found or all(figure.holds is not False for figure in self.figures):
            return found
        return tuple(self._unexplained())

    def _slow_nodes(self) -> Iterator[Broken]:
        off = [node for node in self.nodes if node.holds is False]
        for node in sorted(off, key=lambda one: -abs(one.longer or 0.0)):
            share = f"{abs(node.longer or 0.0):.0%}"
            yield Broken(
                node=node.name,
                text=_("Steps of %(name)s take %(share)s longer than its profile says.")
                % {"name": node.name, "share": share}
                if (node.longer or 0.0) > 0
                else _("Steps of %(name)s take %(share)s less than its profile says.")
                % {"name": node.name, "share": share},
                advice=_(
                    "Look for other work on that machine; else measure the node again, or use the "
                    "profile refined from its traffic, and compute anew."
                ),
            )

    def _links(self) -> Iterator[Broken]:
        for link in self.links:
            if link.holds is False:
                yield Broken(
                    text=_("The link %(name)s does %(rate)s; the plan counts on %(counted)s.")
                    % {
                        "name": link.name,
                        "rate": bit_rate_text(link.measured_bytes_per_s),
                        "counted": bit_rate_text(link.counted_bytes_per_s),
                    },
                    advice=_("Keep the measured rates on the network's page, and compute again."),
                )

    def _lengths(self) -> Iterator[Broken]:
        for mean in self.lengths:
            if mean.holds is False and mean.measured is not None:
                values = {"measured": f"{mean.measured:.0f}", "planned": f"{mean.planned:.0f}"}
                yield Broken(
                    text=_(
                        "Prompts have %(measured)s tokens on average; the plan is for %(planned)s."
                    )
                    % values
                    if mean.phase == "prompt"
                    else _(
                        "Answers have %(measured)s tokens on average; the plan is for %(planned)s."
                    )
                    % values,
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

    def _unexplained(self) -> Iterator[Broken]:
        off = [figure for figure in self.figures if figure.holds is False]
        yield Broken(
            text=_("What was measured of %(names)s is not what was predicted.")
            % {"names": ", ".join(_(figure.quantity.value) for figure in off)},
            advice=_(
                "None of the assumptions that are measured explains it; the page of a slow request "
                "says where its time went."
            ),
        )
