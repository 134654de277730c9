"""Filters of lists in the REST API."""

from typing import Any

from django_filters.rest_framework import DjangoFilterBackend
from rest_framework import exceptions
from rest_framework.request import Request

PAGING = {"limit", "offset"}


class StrictFilters(DjangoFilterBackend):  # type: ignore[misc]
    """A query parameter that a list does not know is an error, never silently ignored."""

    def filter_queryset(self, request: Request, queryset: Any, view: Any) -> Any:
        if getattr(view, "action", None) == "list":
            declared = getattr(getattr(view, "filterset_class", None), "base_filters", ())
            known = {*getattr(view, "filterset_fields", ()), *declared} | PAGING
            unknown = sorted(set(request.query_params) - known)
            if unknown:
                text = f"Unknown parameter; the known ones are: {', '.join(sorted(known))}."
                raise exceptions.ValidationError({name: [text] for name in unknown})
        return super().filter_queryset(request, queryset, view)
