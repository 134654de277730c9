"""Pages of lists: filtered by their address, a page of rows at a time; and lists as files."""

import csv
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from itertools import chain
from typing import Any

import django_filters
from django import forms
from django.contrib import messages
from django.core.paginator import Page, Paginator
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render

from helixweb.common.events import latest_id
from helixweb.common.refusals import Refused
from helixweb.common.spreadsheets import cell
from planner import PlannerError

ROWS_PER_PAGE = 50


class ListFilter(django_filters.FilterSet):  # type: ignore[misc]
    """Filters of a list; a value that cannot be read leaves no row."""

    def filter_queryset(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        found: QuerySet[Any] = super().filter_queryset(queryset)
        return found.none() if self.form.errors else found


def page_of(request: HttpRequest, rows: Any, *, size: int = ROWS_PER_PAGE) -> "Page[Any]":
    """The page of `rows` that `?page=` names; the nearest for a number that there is not."""
    return Paginator(rows, size).get_page(request.GET.get("page"))


def filtered(
    request: HttpRequest, rows: QuerySet[Any], filters: type[django_filters.FilterSet]
) -> dict[str, Any]:
    """Template context: a `page` of the rows, the `form` of the filters, and `is_filtered`."""
    chosen = filters(request.GET, queryset=rows, request=request)
    narrowing = {
        name
        for name, one in chosen.filters.items()
        if not isinstance(one, django_filters.OrderingFilter)
    }
    return {
        "page": page_of(request, chosen.qs),
        "form": chosen.form,
        "is_filtered": any(request.GET.get(name) for name in narrowing),
    }


def list_page(
    request: HttpRequest,
    template: str,
    rows: QuerySet[Any],
    *,
    filters: type[django_filters.FilterSet] | None = None,
    **context: Any,
) -> HttpResponse:
    """The template with a page of the rows."""
    page = {"page": page_of(request, rows)} if filters is None else filtered(request, rows, filters)
    return render(request, template, {**page, **context})


def follows_events(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """A page that shows events after `request.last_event_id`."""

    @wraps(view)
    def page(request: Any, *args: Any, **more: Any) -> HttpResponse:
        request.last_event_id = latest_id()  # before the page's rows are read
        return view(request, *args, **more)

    return page


def by_htmx(request: HttpRequest) -> bool:
    """True if only the part of the page that changes is wanted."""
    return request.headers.get("HX-Request") == "true"


def form_page(request: HttpRequest, template: str, form: Any, **context: Any) -> HttpResponse:
    """The template with the `form`; 422 if it was sent, so that htmx and tests see its errors."""
    status = 422 if form.is_bound else 200
    return render(request, template, {"form": form, **context}, status=status)


class _Echo:
    """A file for `csv.writer` whose `write` returns the line."""

    def write(self, text: str) -> str:
        return text


def csv_file(
    name: str, columns: Iterable[str], lines: Iterable[Iterable[Any]]
) -> StreamingHttpResponse:
    """A file for spreadsheets, with the columns in its first line."""
    writer = csv.writer(_Echo())
    written = ([cell(value) for value in line] for line in lines)
    return StreamingHttpResponse(
        (writer.writerow(line) for line in chain([columns], written)),
        content_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


@contextmanager
def refusals_shown(request: HttpRequest, form: forms.Form | None = None) -> Iterator[None]:
    """Context manager: turns refusals into errors of the form, or a message on the next page."""
    try:
        yield
    except (Refused, PlannerError) as error:
        if form is None:
            messages.error(request, str(error))
        else:
            form.add_error(None, str(error))
