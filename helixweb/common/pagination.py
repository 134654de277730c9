"""Limit and offset, 50 at a time, at most 1000."""

from typing import Any

from rest_framework import exceptions
from rest_framework.pagination import LimitOffsetPagination
from rest_framework.request import Request

from helixweb.common.queries import parsed_id

MAX_OFFSET = 2**31 - 1


class Pages(LimitOffsetPagination):
    """Refuses what it cannot do, instead of answering with something else."""

    default_limit = 50
    max_limit = 1000

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        """DRF's, with the numbers that are taken."""
        bounds = {"limit": (1, self.max_limit), "offset": (0, MAX_OFFSET)}
        parameters: list[dict[str, Any]] = super().get_schema_operation_parameters(view)
        for one in parameters:
            least, most = bounds[one["name"]]
            one["schema"] |= {"minimum": least, "maximum": most}
        return parameters

    def get_limit(self, request: Request) -> int:
        return _number(request, "limit", least=1, most=self.max_limit, default=self.default_limit)

    def get_offset(self, request: Request) -> int:
        return _number(request, "offset", least=0, most=MAX_OFFSET, default=0)


def _number(request: Request, name: str, *, least: int, most: int, default: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    number = parsed_id(text)
    if number is None or not least <= number <= most:
        raise exceptions.ValidationError(
            {name: [f"{text[:20]!r} is not allowed; give a whole number from {least} to {most}."]}
        )
    return number
