"""Limit and offset, 50 at a time, at most 1000."""

from rest_framework import exceptions
from rest_framework.pagination import LimitOffsetPagination
from rest_framework.request import Request


class Pages(LimitOffsetPagination):
    """Refuses what it cannot do, instead of answering with something else."""

    default_limit = 50
    max_limit = 1000

    def get_limit(self, request: Request) -> int:
        return _number(request, "limit", least=1, most=self.max_limit, default=self.default_limit)

    def get_offset(self, request: Request) -> int:
        return _number(request, "offset", least=0, most=2**31 - 1, default=0)


def _number(request: Request, name: str, *, least: int, most: int, default: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    number = int(text) if len(text) <= 10 and text.isascii() and text.isdigit() else -1
    if not least <= number <= most:
        raise exceptions.ValidationError(
            {name: [f"{text[:20]!r} is not allowed; give a whole number from {least} to {most}."]}
        )
    return number
