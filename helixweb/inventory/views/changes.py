"""The change log: who did what to which row of the inventory."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import django_filters
from django import forms
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.utils.text import capfirst
from django.utils.translation import gettext, gettext_lazy

from helixweb.access.log_readers import LogReader
from helixweb.access.needs import VIEWER, needs
from helixweb.common.pages import csv_file, filtered
from helixweb.inventory.forms import CLUSTER_FILTER
from helixweb.inventory.models import Change

# What a line is about, by the name of its model in the database.
KINDS = {
    "cluster": gettext_lazy("cluster"),
    "node": gettext_lazy("node"),
    "coordinator": gettext_lazy("coordinator"),
    "link": gettext_lazy("link"),
    "regionlink": gettext_lazy("link between regions"),
    "sharedbandwidth": gettext_lazy("shared bandwidth"),
    "profile": gettext_lazy("profile"),
    "languagemodel": gettext_lazy("model"),
    "jointoken": gettext_lazy("join token"),
    "alert": gettext_lazy("alert"),
    "deployment": gettext_lazy("deployment"),
    "alertrule": gettext_lazy("alert rule"),
    "channel": gettext_lazy("alert channel"),
    "silence": gettext_lazy("alert silence"),
    "user": gettext_lazy("user"),
    "group": gettext_lazy("group"),
    "grant": gettext_lazy("role"),
    "apikey": gettext_lazy("API key"),
    "login": gettext_lazy("log-in"),
    "session": gettext_lazy("session"),
    "credential": gettext_lazy("key or credential"),
    "request": gettext_lazy("request"),
}
COLUMNS = (
    "at", "actor", "actor_kind", "api_key", "address", "request_id", "batch", "kind", "row_id",
    "name", "cluster", "action", "text", "comment", "before", "after",
)  # fmt: skip
MOST_EXPORTED = 100_000
LONGEST_VALUE = 80


class ChangeFilter(django_filters.FilterSet):  # type: ignore[misc]
    """Filters of the change log; what cannot be read is left out."""

    cluster = CLUSTER_FILTER()
    kind = django_filters.ChoiceFilter(
        label=gettext_lazy("Of"),
        empty_label=gettext_lazy("everything"),
        choices=[(name, capfirst(title)) for name, title in KINDS.items()],
    )
    action = django_filters.ChoiceFilter(
        label=gettext_lazy("What"),
        empty_label=gettext_lazy("everything"),
        choices=[(name, gettext_lazy(name)) for name in Change.Action.values],
    )
    actor = django_filters.CharFilter(label=gettext_lazy("By"))
    request_id = django_filters.CharFilter(label=gettext_lazy("Request"))
    row = django_filters.NumberFilter("row_id", widget=forms.HiddenInput)
    batch = django_filters.UUIDFilter(widget=forms.HiddenInput)


def _rows(reader: LogReader) -> QuerySet[Change]:
    """Lines that `reader` may read, newest first."""
    return reader.lines(Change.objects.within(reader.scope).select_related("cluster"))


@needs(VIEWER)
def changes(request: HttpRequest) -> HttpResponse:
    """Filtered by the query."""
    reader = LogReader.of(request)
    context = filtered(request, _rows(reader), ChangeFilter)
    context |= {
        "lines": change_lines(context["page"], reader),
        "query": request.GET.urlencode(),
    }
    return render(request, "inventory/changes.html", context)


@needs(VIEWER)
def changes_csv(request: HttpRequest) -> StreamingHttpResponse:
    """The lines that the filters leave, all of them, the newest first."""
    reader = LogReader.of(request)
    chosen = ChangeFilter(request.GET, queryset=_rows(reader), request=request)
    rows = chosen.qs[:MOST_EXPORTED].iterator(chunk_size=1000)
    return csv_file("changes.csv", COLUMNS, (_csv_line(row, reader) for row in rows))


def _csv_line(row: Change, reader: LogReader) -> list[str]:
    values = {
        "address": reader.address(row),
        "api_key": reader.api_key(row),
        "cluster": row.cluster.name if row.cluster else row.cluster_name,
        "at": row.at.isoformat(),
        "batch": row.batch or "",
        "before": json.dumps(row.before) if row.before is not None else "",
        "after": json.dumps(row.after) if row.after is not None else "",
    }
    return [str(values.get(name, getattr(row, name))) for name in COLUMNS]


def change_lines(rows: Iterable[Change], reader: LogReader) -> list[dict[str, Any]]:
    """Table rows with the differences in words; the site's words are in `helixweb.words`."""
    return [
        {
            "change": row,
            "kind": KINDS.get(row.kind, row.kind),
            "text": gettext(row.text) if row.text else "",
            "differences": list(_differences(row)),
            "address": reader.address(row),
            "api_key": reader.api_key(row),
        }
        for row in rows
    ]


def _differences(change: Change) -> Iterator[dict[str, str]]:
    """Columns of what was changed; of what was added or removed the name says enough."""
    if change.before is None or change.after is None:
        return
    for column, value in change.after.items():
        title = gettext(column.removesuffix("_id").replace("_", " "))
        for key, old, new in _parts(change.before.get(column), value):
            yield {"column": title + key, "before": _short(old), "after": _short(new)}


def _parts(before: Any, after: Any) -> Iterator[tuple[str, Any, Any]]:
    """For two JSON objects, the keys that differ with both values; else the whole values."""
    if not (isinstance(before, dict) and isinstance(after, dict)):
        yield "", before, after
        return
    for key in before | after:
        if before.get(key) != after.get(key):
            yield f" {key}", before.get(key), after.get(key)


def _short(value: Any) -> str:
    if value is None or value == "" or value == []:
        return "—"
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"
