"""The site's /metrics: each app says what it knows, this puts it on one page.

Labels are names of rows that people made (clusters, nodes) and words of short lists, never what a
client sends. Of a family with more lines than `MOST_LINES` the rest is left out, and said so.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any

from django.apps import apps
from django.db.models import Count, Max, Min
from django.utils.module_loading import import_string, module_has_submodule
from prometheus_client import Metric
from prometheus_client.process_collector import ProcessCollector

from helixweb.common import jobs, web_requests
from helixweb.common.models import Event
from runtime.protocol.exposition import counter, gauge, page

MOST_LINES = 5000
Collect = Callable[[datetime, Any], Iterable[Metric]]
Labels = Mapping[str, str]
# Name, help, and attributes, each by its labels.
Table = Sequence[tuple[str, str, Sequence[tuple[Labels, str]]]]
_UNFINISHED = ("queued", "running")


def metrics_page(now: datetime, scope: Any) -> bytes:
    """Metrics of rows in `scope`, in Prometheus' text format."""
    families = [family for collect in collectors() for family in collect(now, scope)]
    return page([*families, *_shortened(families)])


def collectors() -> Iterator[Collect]:
    """The function `collect` of each app that has a module `metrics`."""
    for app in apps.get_app_configs():
        if app.name.startswith("helixweb.") and module_has_submodule(app.module, "metrics"):
            yield import_string(f"{app.name}.metrics.collect")


def collect(now: datetime, scope: Any) -> Iterator[Metric]:
    """Of the processes, the tasks and the events of the site."""
    yield from ProcessCollector(registry=None).collect()
    yield from web_requests.REGISTRY.collect()
    tasks, oldest = [], []
    for model in [kind.model for kind in jobs.KINDS.values()]:
        kind = {"kind": str(model._meta.model_name)}
        unfinished = model._default_manager.within(scope).filter(status__in=_UNFINISHED)  # type: ignore[attr-defined]
        counts = dict(unfinished.values_list("status").annotate(Count("pk")).order_by())
        tasks += [({**kind, "status": status}, counts.get(status, 0)) for status in _UNFINISHED]
        first = unfinished.aggregate(first=Min("created_at"))["first"]
        oldest.append((kind, 0.0 if first is None else max(0.0, (now - first).total_seconds())))
    yield gauge("helix_tasks", "Tasks that are not finished", tasks)
    yield gauge(
        "helix_task_oldest_seconds", "Since the oldest unfinished task was asked for", oldest
    )
    events = Event.objects.aggregate(kept=Count("pk"), last=Max("pk"))
    yield gauge("helix_outbox_kept_events", "Events that can be replayed", [({}, events["kept"])])
    yield counter("helix_outbox_events_total", "Events written so far", [({}, events["last"] or 0)])


def gauges(table: Table, labelled: Sequence[tuple[Labels, Any]]) -> Iterator[Metric]:
    """A gauge for each line of the table, with values of these things and their labels."""
    for name, words, attributes in table:
        values = [
            ({**labels, **more}, attrgetter(attribute)(thing))
            for labels, thing in labelled
            for more, attribute in attributes
        ]
        known = [(labels, None if value is None else float(value)) for labels, value in values]
        yield gauge(f"helix_{name}", words, known)


def _shortened(families: list[Metric]) -> Iterator[Metric]:
    """Truncates families that are too long, and adds a metric of the number of lines left out."""
    left_out = {}
    for family in families:
        if len(family.samples) > MOST_LINES:
            left_out[family.name] = len(family.samples) - MOST_LINES
            del family.samples[MOST_LINES:]
    yield gauge(
        "helix_metrics_left_out",
        "Lines left out of a family that has too many",
        [({"family": name}, count) for name, count in left_out.items()] or [({"family": ""}, 0)],
    )
