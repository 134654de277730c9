"""Does the steps of an import in one transaction; one batch in the change log, in bulk."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from helixweb.common import events
from helixweb.common.actor import together
from helixweb.common.sentences import sentence
from helixweb.inventory.as_code.diff import Action, Step
from helixweb.inventory.as_code.kinds import CLUSTERS, MODELS, NODES, PROFILES, Kind
from helixweb.inventory.models import Change, Cluster, LanguageModel, NodeTag
from helixweb.inventory.services.change_log import change_of, values_of
from helixweb.inventory.services.errors import NameTaken
from helixweb.inventory.services.shared_bandwidths import forget_members

_AT_ONCE = 500
_ACTIONS = {
    Action.ADD: Change.Action.ADDED,
    Action.CHANGE: Change.Action.CHANGED,
    Action.REMOVE: Change.Action.REMOVED,
}


def apply(steps: Sequence[Step]) -> None:
    """Call it in a transaction, with steps that were checked in it. Raises NameTaken."""
    ids = _Ids()
    try:
        with together(), transaction.atomic():
            for (action, kind, cluster), group in groupby(
                steps, key=lambda step: (step.action, step.kind, step.cluster)
            ):
                for part in _parts(group):
                    _DO[action](kind, cluster, part, ids)
    except IntegrityError as error:  # between the look and the insert
        raise NameTaken(
            _(
                "Another request made a row of the same name at the same moment; "
                "import the file again."
            )
        ) from error
    _announce(steps, ids)


class _Ids:
    """Names of clusters and models as ids, those of this import too."""

    def __init__(self) -> None:
        self._clusters: dict[str, int] = {}
        self._models: dict[str, int] = {}

    def cluster(self, name: str) -> int:
        if name not in self._clusters:
            self._clusters[name] = Cluster.objects.get(name=name).pk
        return self._clusters[name]

    def model(self, name: str) -> int:
        if name not in self._models:
            self._models[name] = LanguageModel.objects.get(name=name).pk
        return self._models[name]


def _add(kind: Kind, cluster: str, part: Sequence[Step], ids: _Ids) -> None:
    made = [
        kind.row(**_columns(kind, step.after, ids), **_place(kind, cluster, ids)) for step in part
    ]
    if kind is CLUSTERS or kind is MODELS:
        for row in made:
            row.save()
    else:
        kind.row._default_manager.bulk_create(made, batch_size=_AT_ONCE)
    kind.added(made)
    if kind is NODES:
        _add_tags(zip(made, (step.after.get("tags", ()) for step in part), strict=True))
    _log(change_of(row, Change.Action.ADDED, after=values_of(row)) for row in made)


def _change(kind: Kind, cluster: str, part: Sequence[Step], ids: _Ids) -> None:
    found = kind.row._default_manager.in_bulk([step.pk for step in part])
    changed, lines, names = [], [], set[str]()
    for step in part:
        row = found[step.pk]
        before = values_of(row)
        columns = _columns(kind, step.after, ids)
        for name, value in columns.items():
            setattr(row, name, value)
        names |= columns.keys()
        changed.append(row)
        told_before, told_after = dict(before), dict(values_of(row))
        if "tags" in step.after:
            told_before["tags"], told_after["tags"] = [
                list(tags) for tags in (step.before["tags"], step.after["tags"])
            ]
        lines.append(change_of(row, Change.Action.CHANGED, before=told_before, after=told_after))
    if names:
        if any(field.name == "recorded_at" for field in kind.row._meta.concrete_fields):
            names.add("recorded_at")
            for row in changed:
                row.recorded_at = timezone.now()  # type: ignore[attr-defined]
        kind.row._default_manager.bulk_update(changed, sorted(names), batch_size=_AT_ONCE)
    if kind is NODES:
        retagged = [(found[step.pk], step.after["tags"]) for step in part if "tags" in step.after]
        NodeTag.objects.filter(node__in=[row.pk for row, _tags in retagged]).delete()
        _add_tags(retagged)
    _log(lines)


def _remove(kind: Kind, cluster: str, part: Sequence[Step], ids: _Ids) -> None:
    found = kind.row._default_manager.in_bulk([step.pk for step in part])
    _log(change_of(row, Change.Action.REMOVED, before=values_of(row)) for row in found.values())
    if kind is NODES:
        forget_members(ids.cluster(cluster), {step.key[0] for step in part})
    kind.row._default_manager.filter(pk__in=list(found)).delete()


_DO = {Action.ADD: _add, Action.CHANGE: _change, Action.REMOVE: _remove}


def _columns(kind: Kind, values: Mapping[str, Any], ids: _Ids) -> dict[str, Any]:
    told = {kind.column(key): values[key] for key in values if key in kind.columns}
    if kind is PROFILES and "model" in values:
        told["model_id"] = ids.model(values["model"])
    return told


def _place(kind: Kind, cluster: str, ids: _Ids) -> dict[str, int]:
    return {} if kind in (MODELS, CLUSTERS) else {"cluster_id": ids.cluster(cluster)}


def _add_tags(nodes: Iterable[tuple[Any, Iterable[str]]]) -> None:
    rows = [NodeTag(node_id=node.pk, name=name) for node, tags in nodes for name in tags]
    NodeTag.objects.bulk_create(rows, batch_size=_AT_ONCE)


def _log(lines: Iterable[Change | None]) -> None:
    told = [line for line in lines if line is not None]
    Change.objects.bulk_create(told, batch_size=_AT_ONCE)


def _announce(steps: Iterable[Step], ids: _Ids) -> None:
    """One event per cluster, and a silent one for every kind of row that pages show."""
    counts: dict[str, dict[Action, int]] = {}
    kinds: dict[str, set[str]] = {}
    for step in steps:
        cluster = step.cluster or (step.key[0] if step.kind is CLUSTERS else "")
        if cluster:
            told = counts.setdefault(cluster, dict.fromkeys(Action, 0))
            told[step.action] += 1
            kinds.setdefault(cluster, set()).add(_EVENTS.get(step.kind.section, "event"))
    for cluster, told in counts.items():
        said = sentence(
            gettext_noop(
                "A file was imported: %(added)s rows added, %(changed)s changed, "
                "%(removed)s removed."
            ),
            added=told[Action.ADD],
            changed=told[Action.CHANGE],
            removed=told[Action.REMOVE],
        )
        for type_ in sorted(kinds[cluster]):
            data = {"name": "", "state": "changed", **said} if type_ == "node" else said
            events.emit(f"cluster:{ids.cluster(cluster)}", type_, data)


_EVENTS = {
    "nodes": "node", "links": "link", "region_links": "link", "shared_bandwidths": "link",
    "profiles": "model",
}  # fmt: skip


def _parts(steps: Iterable[Step]) -> Iterator[list[Step]]:
    part: list[Step] = []
    for step in steps:
        part.append(step)
        if len(part) == _AT_ONCE:
            yield part
            part = []
    if part:
        yield part
