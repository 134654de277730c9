"""Limit and offset, 50 at a time, at most 1000."""

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from rest_framework import exceptions
from rest_framework.pagination import LimitOffsetPagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.urls import remove_query_param, replace_query_param

if TYPE_CHECKING:
    from helixweb.common.rest.listing import Listing

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

    def of(self, listing: "Listing", request: Request) -> Response:
        """The page that is asked for."""
        self.request = request
        self.limit, self.offset = self.get_limit(request), self.get_offset(request)
        self.count = listing.count()
        reaches = self.offset < self.count
        end = self.offset + self.limit
        return self.get_paginated_response(listing.page(self.offset, end) if reaches else [])

    def get_next_link(self) -> str | None:
        end = self._start + self._most
        return None if end >= (self.count or 0) else self._link_to(end)

    def get_previous_link(self) -> str | None:
        return None if self._start <= 0 else self._link_to(max(0, self._start - self._most))

    def _link_to(self, start: int) -> str:
        assert self.request is not None  # noqa: S101 - there is a page, so somebody asked
        return _page_of(self.request.build_absolute_uri(), self._most, start)

    @property
    def _start(self) -> int:
        return self.offset or 0

    @property
    def _most(self) -> int:
        return self.limit or 0

    def get_limit(self, request: Request) -> int:
        return _number(request, "limit", least=1, most=self.max_limit, default=self.default_limit)

    def get_offset(self, request: Request) -> int:
        return _number(request, "offset", least=0, most=MAX_OFFSET, default=0)


@lru_cache(maxsize=256)
def _page_of(url: str, limit: int, offset: int) -> str:
    limited = replace_query_param(url, "limit", limit)
    if not offset:
        return str(remove_query_param(limited, "offset"))
    return str(replace_query_param(limited, "offset", offset))


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
