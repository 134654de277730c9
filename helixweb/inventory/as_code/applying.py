"""Applies the steps of an import in bulk, logs them, and notifies open pages."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from django.db import IntegrityError, models
from django.utils.translation import gettext_noop

from helixweb.common import events
from helixweb.common.sentences import sentence
from helixweb.inventory.as_code.diff import Action, Step
from helixweb.inventory.as_code.kinds import CLUSTERS, MODELS, NODES, Kind
from helixweb.inventory.models import Change, Cluster, LanguageModel, NodeTag
from helixweb.inventory.services.bulk import AT_ONCE, batches
from helixweb.inventory.services.change_log import Values, change_of, record_all, values_of
from helixweb.inventory.services.errors import NameTaken
from helixweb.inventory.services.records import FOLLOWED, forget_members


@dataclass(frozen=True, slots=True)
class Written:
    """The row of a step as it is now, and its values in the change log before and after."""

    step: Step
    row: models.Model
    before: Values | None
    after: Values | None


def apply(steps: Iterable[Step]) -> list[Written]:
    """Call it in a transaction. Raises NameTaken."""
    written: list[Written] = []
    try:
        for (action, kind, cluster), group in groupby(
            steps, key=lambda step: (step.action, step.kind, step.cluster)
        ):
            for part in batches(list(group)):
                written += _DO[action](kind, cluster, part)
    except IntegrityError as error:  # between the look and the insert
        raise NameTaken(
            "Another request made a row of the same name at the same moment; import the file again."
        ) from error
    return written


def _add(kind: Kind, cluster: str, part: Sequence[Step]) -> list[Written]:
    owner = {} if kind in (MODELS, CLUSTERS) else {"cluster": Cluster.unscoped.get(name=cluster)}
    made = [kind.row(**_columns(kind, step.after), **owner) for step in part]
    kind.row._base_manager.bulk_create(made, batch_size=AT_ONCE)
    kind.added(made)
    _set_tags(zip(made, part, strict=True))
    return [Written(step, row, None, values_of(row)) for step, row in zip(part, made, strict=True)]


def _change(kind: Kind, cluster: str, part: Sequence[Step]) -> list[Written]:
    rows: Any = kind.row._base_manager
    found = rows.in_bulk([step.pk for step in part])
    before = {pk: values_of(row) for pk, row in found.items()}
    for step in part:
        row = found[step.pk]
        for name, value in _columns(kind, step.after).items():
            setattr(row, name, value)
        row.save()
    _set_tags((found[step.pk], step) for step in part)
    return [
        Written(
            step,
            found[step.pk],
            {**before[step.pk], **_tags(step.before)},
            {**values_of(found[step.pk]), **_tags(step.after)},
        )
        for step in part
    ]


def _remove(kind: Kind, cluster: str, part: Sequence[Step]) -> list[Written]:
    rows: Any = kind.row._base_manager
    found = rows.in_bulk([step.pk for step in part])
    written = [Written(step, found[step.pk], values_of(found[step.pk]), None) for step in part]
    if kind is NODES:
        forget_members(Cluster.unscoped.get(name=cluster).pk, {step.name for step in part})
    rows.filter(pk__in=found).delete()
    return written


_DO = {Action.ADD: _add, Action.CHANGE: _change, Action.REMOVE: _remove}


def _columns(kind: Kind, values: Mapping[str, Any]) -> dict[str, Any]:
    columns = {kind.column(key): value for key, value in values.items() if key != "tags"}
    if "model" in columns:
        columns["model"] = LanguageModel.objects.get(name=columns["model"])
    return columns


def _tags(values: Mapping[str, Any]) -> Values:
    return {"tags": values["tags"]} if "tags" in values else {}


def _set_tags(pairs: Iterable[tuple[Any, Step]]) -> None:
    tagged = [(row.pk, step.after["tags"]) for row, step in pairs if "tags" in step.after]
    NodeTag.unscoped.filter(node__in=[pk for pk, _ in tagged]).delete()
    rows = [NodeTag(node_id=pk, name=name) for pk, tags in tagged for name in tags]
    NodeTag.objects.bulk_create(rows, batch_size=AT_ONCE)


_ACTIONS = {
    Action.ADD: Change.Action.ADDED,
    Action.CHANGE: Change.Action.CHANGED,
    Action.REMOVE: Change.Action.REMOVED,
}


def announce(written: Sequence[Written], *, in_one_line: bool) -> None:
    """A line of the change log for each row, or one for a new cluster that names the number of its
    nodes; one event per cluster and kind of row."""
    text = f"{sum(one.step.kind is NODES for one in written)} nodes" if in_one_line else ""
    record_all(
        change_of(one.row, _ACTIONS[one.step.action], before=one.before, after=one.after, text=text)
        for one in written
        if one.step.kind is CLUSTERS or not in_one_line
    )
    counts: dict[int, Counter[Action]] = defaultdict(Counter)
    types: dict[int, set[str]] = defaultdict(set)
    for one in written:
        row: Any = one.row
        if one.step.kind is not MODELS:
            cluster = row.pk if one.step.kind is CLUSTERS else row.cluster_id
            counts[cluster][one.step.action] += 1
            types[cluster].add(FOLLOWED.get(one.step.kind.row, ("event", ""))[0])
    for cluster, count in counts.items():
        said = sentence(
            gettext_noop(
                "A file was imported: %(added)s rows added, %(changed)s changed, "
                "%(removed)s removed."
            ),
            added=count[Action.ADD],
            changed=count[Action.CHANGE],
            removed=count[Action.REMOVE],
        )
        for type_ in sorted(types[cluster]):
            data = {"name": "", "state": "changed", **said} if type_ == "node" else said
            events.emit(f"cluster:{cluster}", type_, data)
