"""Options of plans and simulations, for JSON columns, forms and the REST API."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from planner import InvalidOptions, Option, PlanOptions, options_of
from planner.workload import InvalidWorkload
from runtime.protocol.complaints import complaint

if TYPE_CHECKING:
    from pydantic import TypeAdapter

MAX_BUDGET_BYTES = 1e18
MAX_EXPLANATION_SEARCH_S = 60.0
OPTIONS = options_of(PlanOptions)
DEFAULTS = PlanOptions()
MIN_SHARE, MAX_SHARE = 0.01, 2.0


@cache
def _json() -> "TypeAdapter[PlanOptions]":
    from pydantic import TypeAdapter  # which no command needs that only starts Django

    return TypeAdapter(PlanOptions)


def why_no_degree(method: str, degree: int | None) -> str:
    """Why no plan by `method` has instances of `degree` GPUs; blank: it can.

    Rows from before this was refused may hold both; their runs never read the degree.
    """
    if degree is None or method != "pipelines":
        return ""
    return _(
        "%(value)s GPUs of an instance mean nothing to pipelines, which have none: choose the "
        "method 'instances' or 'mixed', or leave them out."
    ) % {"value": degree}


def options_to_json(options: PlanOptions) -> dict[str, Any]:
    """Plain JSON values; the policy is always the runtime's."""
    values: dict[str, Any] = _json().dump_python(options, mode="json", exclude={"policy"})
    values["rules"]["excluded_nodes"].sort()  # a set has no order of its own
    return values


def options_from_json(values: Mapping[str, Any]) -> PlanOptions:
    """The options `options_to_json` wrote; keys left out take their defaults.

    Rows from before there were objectives name none: their runs were for flow. Raises planner's
    InvalidOptions.
    """
    from pydantic import ValidationError

    try:
        return _json().validate_python({"objective": "flow"} | dict(values))
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False)
        raise InvalidOptions("; ".join(complaint(detail) for detail in details)) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationRequest:
    """The workload of a simulation. `share` is of the peak, at which requests always wait.

    Raises InvalidWorkload for what the workload lacks or cannot have.
    """

    workload: Annotated[
        str,
        Option(
            "Workload",
            choices={
                "backlog": "Offline: requests always wait",
                "poisson": "Online: requests come at random",
                "bursts": "Online, in bursts",
            },
        ),
    ] = "backlog"
    share: Annotated[
        float | None,
        Option(
            "Requests at this share of the peak",
            "The peak is what the plan serves when requests always wait.",
            least=MIN_SHARE,
            most=MAX_SHARE,
        ),
    ] = None
    burst_size: Annotated[int | None, Option("Requests in a burst", least=1, most=1000)] = None
    policy: Annotated[
        str,
        Option(
            "Batches and links as in",
            choices={
                "runtime": "HelixWeb's runtime",
                "published": "Helix's prototype, as published",
            },
        ),
    ] = "runtime"
    seed: Annotated[int, OPTIONS["seed"].spec] = 0

    def __post_init__(self) -> None:
        is_online = self.workload != "backlog"
        if is_online and (self.share is None or not MIN_SHARE <= self.share <= MAX_SHARE):
            raise InvalidWorkload(
                _(
                    "share is %(share)s; requests that arrive need one from %(min_share)s to "
                    "%(max_share)s of the peak"
                )
                % {
                    "share": self.share,
                    "min_share": f"{MIN_SHARE:g}",
                    "max_share": f"{MAX_SHARE:g}",
                }
            )
        if not is_online and self.share is not None:
            raise InvalidWorkload(
                _("share is %(share)s but requests always wait; leave it out")
                % {"share": self.share}
            )
        if (self.burst_size is not None) != (self.workload == "bursts"):
            raise InvalidWorkload(
                _(
                    "burst_size is %(burst_size)s but the workload is %(workload)s; it is "
                    "for 'bursts', which need it"
                )
                % {"burst_size": self.burst_size, "workload": repr(self.workload)}
            )


def choices_of(name: str) -> list[tuple[str, Any]]:
    """Words and labels of an option of simulations, for its column."""
    words = options_of(SimulationRequest)[name].spec.choices
    return [(word, gettext_lazy(text)) for word, text in words.items()]
