"""The change log: who did what to which row of the inventory."""

import csv
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.utils.translation import gettext, gettext_lazy, gettext_noop
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from helixweb.access.log_readers import LogReader
from helixweb.common.queries import query_id
from helixweb.common.spreadsheets import cell
from helixweb.inventory.models import Change, Cluster

CHANGES_PER_PAGE = 50
KINDS = {
    "cluster": gettext_lazy("Clusters"),
    "node": gettext_lazy("Nodes"),
    "coordinator": gettext_lazy("Coordinators"),
    "link": gettext_lazy("Links"),
    "regionlink": gettext_lazy("Links between regions"),
    "sharedbandwidth": gettext_lazy("Shared bandwidths"),
    "profile": gettext_lazy("Profiles"),
    "languagemodel": gettext_lazy("Models"),
    "jointoken": gettext_lazy("Join tokens"),
    "alert": gettext_lazy("Alerts"),
    "deployment": gettext_lazy("Deployments"),
    "alertrule": gettext_lazy("Alert rules"),
    "channel": gettext_lazy("Channels"),
    "silence": gettext_lazy("Silences"),
    "user": gettext_lazy("Users"),
    "group": gettext_lazy("Groups"),
    "grant": gettext_lazy("Roles"),
    "apikey": gettext_lazy("API keys"),
    "login": gettext_lazy("Log-ins"),
    "session": gettext_lazy("Sessions"),
    "credential": gettext_lazy("Keys and credentials refused"),
    "request": gettext_lazy("Other requests"),
}
ACTIONS = {
    "added": gettext_lazy("added"),
    "changed": gettext_lazy("changed"),
    "removed": gettext_lazy("removed"),
    "noted": gettext_lazy("noted"),
    "refused": gettext_lazy("refused"),
}
COLUMNS = (
    "at", "actor", "actor_kind", "api_key", "address", "request_id", "batch", "kind", "row_id",
    "name", "cluster", "action", "text", "comment", "before", "after",
)  # fmt: skip
MOST_EXPORTED = 100_000
# Of one row, where its name in the database is no word.
WORDS = {
    "regionlink": gettext_noop("link between regions"),
    "sharedbandwidth": gettext_noop("shared bandwidth"),
    "languagemodel": gettext_noop("model"),
    "jointoken": gettext_noop("join token"),
    "deployment": gettext_noop("deployment"),
    "alertrule": gettext_noop("alert rule"),
    "channel": gettext_noop("alert channel"),
    "silence": gettext_noop("alert silence"),
    "apikey": gettext_noop("API key"),
    "login": gettext_noop("log-in"),
    "grant": gettext_noop("role"),
    "user": gettext_noop("user"),
    "group": gettext_noop("group"),
    "session": gettext_noop("session"),
    "credential": gettext_noop("key or credential"),
    "request": gettext_noop("request"),
}
LONGEST_VALUE = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One column before and after; a dash where there was or is none."""

    column: str
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeLine:
    """A line of the log, ready to be shown."""

    change: Change
    differences: tuple[Difference, ...]
    address: str
    api_key: str

    @property
    def kind(self) -> str:
        """Of what row, in words."""
        return gettext(WORDS.get(self.change.kind, self.change.kind))

    @property
    def text(self) -> str:
        """What the site noted; its words are of `helixweb.words`."""
        return gettext(self.change.text) if self.change.text else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeFilter:
    """What of the log is asked for; empty is everything."""

    cluster: int = 0
    kind: str = ""
    row: int = 0
    actor: str = ""
    action: str = ""
    request_id: str = ""
    batch: uuid.UUID | None = None

    @classmethod
    def from_query(cls, request: HttpRequest) -> "ChangeFilter":
        kind, action = request.GET.get("kind", ""), request.GET.get("action", "")
        return cls(
            cluster=query_id(request, "cluster"),
            kind=kind if kind in KINDS else "",
            row=query_id(request, "row"),
            actor=request.GET.get("actor", "")[:150],
            action=action if action in Change.Action.values else "",
            request_id=request.GET.get("request_id", "")[:64],
            batch=_uuid(request.GET.get("batch", "")),
        )

    def rows(self, reader: LogReader) -> QuerySet[Change]:
        """Those that fit and that `reader` may read, the newest first."""
        wanted = {
            "cluster": self.cluster,
            "kind": self.kind,
            "row_id": self.row,
            "actor": self.actor,
            "action": self.action,
            "request_id": self.request_id,
            "batch": self.batch,
        }
        found = reader.lines(Change.objects.select_related("cluster"))
        return found.filter(**{name: value for name, value in wanted.items() if value})


@require_GET
@never_cache
def changes(request: HttpRequest) -> HttpResponse:
    """Narrowed by what `ChangeFilter` knows of the query."""
    asked, reader = ChangeFilter.from_query(request), LogReader.of(request)
    page = Paginator(asked.rows(reader), CHANGES_PER_PAGE).get_page(request.GET.get("page"))
    context = {
        "page": page,
        "lines": change_lines(page, reader),
        "kinds": KINDS,
        "actions": ACTIONS,
        "clusters": Cluster.objects.only("name"),
        "asked": asked,
        "is_filtered": asked != ChangeFilter(),
        "query": request.GET.urlencode(),
    }
    return render(request, "inventory/changes.html", context)


@require_GET
@never_cache
def changes_csv(request: HttpRequest) -> StreamingHttpResponse:
    """The lines that the filters leave, all of them, the newest first."""
    reader = LogReader.of(request)
    rows = ChangeFilter.from_query(request).rows(reader)[:MOST_EXPORTED].iterator(chunk_size=1000)
    writer = csv.writer(_Echo())
    lines = chain([COLUMNS], (_csv_line(row, reader) for row in rows))
    response = StreamingHttpResponse(
        (writer.writerow(line) for line in lines), content_type="text/csv; charset=utf-8"
    )
    response.headers["Content-Disposition"] = 'attachment; filename="changes.csv"'
    return response


def _uuid(text: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(text)
    except ValueError:
        return None


class _Echo:
    """What csv writes to: gives each line back."""

    def write(self, text: str) -> str:
        return text


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
    return [cell(str(values.get(name, getattr(row, name)))) for name in COLUMNS]


def change_lines(rows: Iterable[Change], reader: LogReader) -> list[ChangeLine]:
    """With their differences in words, for tables."""
    return [
        ChangeLine(
            change=row,
            differences=_differences(row),
            address=reader.address(row),
            api_key=reader.api_key(row),
        )
        for row in rows
    ]


def _differences(change: Change) -> tuple[Difference, ...]:
    """Columns of what was changed; of what was added or removed the name says enough."""
    if change.before is None or change.after is None:
        return ()
    before: Mapping[str, Any] = change.before
    return tuple(
        Difference(
            column=gettext(column.removesuffix("_id").replace("_", " ")) + key,
            before=_short(old),
            after=_short(new),
        )
        for column, value in change.after.items()
        for key, old, new in _parts(before.get(column), value)
    )


def _parts(before: Any, after: Any) -> Iterator[tuple[str, Any, Any]]:
    """Of two JSON objects the keys that differ, each with both values; else the values whole."""
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
