"""Chooses the format of an answer by the header Accept, or by `?format=` where an address
supports it."""

from collections.abc import Iterable

from rest_framework.exceptions import ValidationError
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.renderers import BaseRenderer


class ByFormat(DefaultContentNegotiation):
    """DRF's answers 404 to a format that it does not know."""

    def filter_renderers(
        self,
        renderers: Iterable[BaseRenderer],
        format: str,
    ) -> list[BaseRenderer]:
        known = sorted({str(renderer.format) for renderer in renderers})
        if format not in known:
            message = f"{format[:40]!r} is no format of this; use {', '.join(known)}."
            raise ValidationError({"format": [message]})
        return [renderer for renderer in renderers if renderer.format == format]


class ByAccept(DefaultContentNegotiation):
    """`?format=` is a parameter like others, refused where a view does not know it."""

    def filter_renderers(
        self,
        renderers: Iterable[BaseRenderer],
        format: str,
    ) -> list[BaseRenderer]:
        return list(renderers)
