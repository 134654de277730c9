"""Plan options between the planner's dataclass, JSON columns, forms and the REST API."""

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _
from pydantic import TypeAdapter, ValidationError

from planner.domain.option import options_of
from planner.placers.base import InvalidOptions
from planner.plan_options import PlanOptions
from runtime.protocol.complaints import complaint

MAX_BUDGET_BYTES = 1e18
MAX_EXPLANATION_SEARCH_S = 60.0
OPTIONS = options_of(PlanOptions)
DEFAULTS = PlanOptions()


_JSON = TypeAdapter(PlanOptions)


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
    values: dict[str, Any] = _JSON.dump_python(options, mode="json", exclude={"policy"})
    values["rules"]["excluded_nodes"].sort()  # a set has no order of its own
    return values


def options_from_json(values: Mapping[str, Any]) -> PlanOptions:
    """The options `options_to_json` wrote; keys left out take their defaults.

    Rows from before there were objectives name none: their runs were for flow. Raises planner's
    InvalidOptions.
    """
    try:
        return _JSON.validate_python({"objective": "flow"} | dict(values))
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False)
        raise InvalidOptions("; ".join(complaint(detail) for detail in details)) from error
