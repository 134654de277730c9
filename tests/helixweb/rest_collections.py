"""The lists and operations of the REST API: what is said of all is looked at in all."""

from collections.abc import Iterator
from functools import cache
from typing import Any

from django.urls import URLPattern, URLResolver, get_resolver
from drf_spectacular.generators import SchemaGenerator

from helixweb.common.rest.viewsets import ReadViewSet

PREFIX = "api/v1/"


def collections() -> dict[str, type[ReadViewSet[Any]]]:
    """Address of each list, and what answers there."""
    found = {}
    for pattern in _patterns(get_resolver()):
        view = getattr(pattern.callback, "cls", None)
        actions = getattr(pattern.callback, "actions", None) or {}
        if view is not None and issubclass(view, ReadViewSet) and actions.get("get") == "list":
            name = str(pattern.pattern).strip("^$\\Z").rstrip("/")
            found[f"/{PREFIX}{name}/"] = view
    return found


@cache
def openapi_document() -> dict[str, Any]:
    """Generated once; callers must not change it."""
    return SchemaGenerator().get_schema(request=None, public=True)


@cache
def operations() -> dict[str, str]:
    """Operation ids of the OpenAPI document, and their methods in small letters."""
    return {
        operation["operationId"]: method
        for methods in openapi_document()["paths"].values()
        for method, operation in methods.items()
    }


def _patterns(resolver: URLResolver) -> Iterator[URLPattern]:
    for entry in resolver.url_patterns:
        if isinstance(entry, URLResolver):
            yield from _patterns(entry)
        else:
            yield entry
