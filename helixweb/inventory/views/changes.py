"""The change log: who did what to which row of the inventory."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext, gettext_lazy, gettext_noop
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from helixweb.common.queries import query_id
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
}
# Of one row, where its name in the database is no word.
WORDS = {
    "regionlink": gettext_noop("link between regions"),
    "sharedbandwidth": gettext_noop("shared bandwidth"),
    "languagemodel": gettext_noop("model"),
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

    @property
    def kind(self) -> str:
        """Of what row, in words."""
        return gettext(WORDS.get(self.change.kind, self.change.kind))

    @property
    def text(self) -> str:
        """What the site noted; its words are of `helixweb.words`."""
        return gettext(self.change.text) if self.change.text else ""


@require_GET
@never_cache
def changes(request: HttpRequest) -> HttpResponse:
    """`?cluster=`, `?kind=`, `?row=`, `?actor=` narrow it."""
    kind, actor = request.GET.get("kind", ""), request.GET.get("actor", "")
    found = Change.objects.select_related("cluster")
    if cluster := query_id(request, "cluster"):
        found = found.filter(cluster=cluster)
    if kind in KINDS:
        found = found.filter(kind=kind)
    if row := query_id(request, "row"):
        found = found.filter(row_id=row)
    if actor:
        found = found.filter(actor=actor)
    page = Paginator(found, CHANGES_PER_PAGE).get_page(request.GET.get("page"))
    context = {
        "page": page,
        "lines": change_lines(page),
        "kinds": KINDS,
        "kind": kind,
        "clusters": Cluster.objects.only("name"),
        "cluster": cluster,
        "row": row,
        "actor": actor,
    }
    return render(request, "inventory/changes.html", context)


def change_lines(rows: Iterable[Change]) -> list[ChangeLine]:
    """With their differences in words, for tables."""
    return [ChangeLine(change=row, differences=_differences(row)) for row in rows]


def _differences(change: Change) -> tuple[Difference, ...]:
    """Columns of what was changed; of what was added or removed the name says enough."""
    if change.before is None or change.after is None:
        return ()
    before: Mapping[str, Any] = change.before
    return tuple(
        Difference(
            column=column.removesuffix("_id").replace("_", " "),
            before=_short(before.get(column)),
            after=_short(value),
        )
        for column, value in change.after.items()
    )


def _short(value: Any) -> str:
    if value is None or value == "" or value == []:
        return "—"
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"
