"""Create, change and delete rows of the inventory by hand: checked, and announced to open pages."""

from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from django.db import IntegrityError, models, transaction
from django.db.models import ProtectedError, RestrictedError
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from helixweb.common import events
from helixweb.common.sentences import sentence
from helixweb.inventory.cluster_names import ClusterNames
from helixweb.inventory.models import (
    Change,
    Cluster,
    Coordinator,
    LanguageModel,
    Link,
    Node,
    Origin,
    Profile,
    RegionLink,
    SharedBandwidth,
)
from helixweb.inventory.services.change_log import Values, outlive, record, values_of
from helixweb.inventory.services.checks import check_row
from helixweb.inventory.services.errors import Conflicting, NameTaken
from helixweb.inventory.services.joining import announce

Row = TypeVar("Row", bound=models.Model)
Fields = dict[str, Any]
# Rows that open pages follow: the type of their events, and their name in messages.
FOLLOWED: dict[type[models.Model], tuple[str, str]] = {
    Node: ("node", gettext_noop("Node")),
    Coordinator: ("node", gettext_noop("Coordinator")),
    Link: ("link", gettext_noop("Link")),
    RegionLink: ("link", gettext_noop("Link")),
    SharedBandwidth: ("link", gettext_noop("Shared bandwidth")),
    Profile: ("model", gettext_noop("Profile")),
}
_SAID = {
    Change.Action.ADDED: gettext_noop("%(what)s %(name)s was added."),
    Change.Action.CHANGED: gettext_noop("%(what)s %(name)s was changed."),
    Change.Action.REMOVED: gettext_noop("%(what)s %(name)s was removed."),
}


def create(row_type: type[Row], **fields: Any) -> Row:
    """A new row. Raises InvalidProblem, NameTaken."""
    columns, others = _split(row_type, fields)
    row = row_type(**columns)
    with transaction.atomic():
        _save(row, before=None)
        _set_others(row, others)
    return row


def update(row: Row, **changes: Any) -> Row:
    """Change fields of a row. Raises InvalidProblem, NameTaken, Conflicting."""
    with transaction.atomic():
        # Read again: a form may have written into `row` already.
        before = values_of(type(row)._base_manager.get(pk=row.pk))
        if isinstance(row, Node):
            _rename_in_network(row, old=before["name"], new=changes.get("name", row.name))
        columns, others = _split(type(row), changes)
        for name, value in columns.items():
            setattr(row, name, value)
        _save(row, before=before)
        _set_others(row, others)
    return row


def _split(row_type: type[models.Model], given: Fields) -> tuple[Fields, Fields]:
    """The row's own columns, and what leads to several other rows."""
    several = {field.name for field in row_type._meta.many_to_many}
    others = {name: rows for name, rows in given.items() if name in several}
    return {name: value for name, value in given.items() if name not in several}, others


def _set_others(row: models.Model, others: Fields) -> None:
    for name, rows in others.items():
        field = getattr(row, name)
        before = sorted(map(str, field.all()))
        field.set(rows)
        after = sorted(map(str, rows))
        record(row, Change.Action.CHANGED, before={name: before}, after={name: after})


def delete(row: models.Model) -> None:
    """Delete a row with what depends on it, a node with its links. Raises Conflicting."""
    with transaction.atomic():
        if isinstance(row, Node):
            named = models.Q(source=row.name) | models.Q(target=row.name)
            Link.unscoped.filter(named, cluster=row.cluster).delete()
            forget_members(row.cluster_id, {row.name})
        if isinstance(row, Cluster):
            outlive(row)
        _announce(row, Change.Action.REMOVED)
        record(row, Change.Action.REMOVED, before=values_of(row))
        try:
            row.delete()
        except (ProtectedError, RestrictedError) as error:
            holders = (
                error.protected_objects
                if isinstance(error, ProtectedError)
                else error.restricted_objects
            )
            users = ", ".join(sorted({str(user) for user in holders})[:5])
            raise Conflicting(
                _(
                    "%(row)s was deployed (%(users)s), and deployments are kept; it can be "
                    "deleted once their clusters are."
                )
                % {"row": row, "users": users}
            ) from error


def _save(row: models.Model, *, before: Values | None) -> None:
    if not isinstance(row, Cluster | LanguageModel):
        check_row(row, ClusterNames(row.cluster))  # type: ignore[attr-defined]
    try:
        with transaction.atomic():
            row.save()
            action = Change.Action.ADDED if before is None else Change.Action.CHANGED
            record(row, action, before=before, after=values_of(row))
            _announce(row, action)
            if isinstance(row, RegionLink) and row.origin == Origin.ENTERED:
                _delete_measured_pairs(row)
    except IntegrityError as error:
        raise NameTaken(
            _("%(row)s exists already; choose another name or change that one.") % {"row": row}
        ) from error


def _delete_measured_pairs(regions: RegionLink) -> None:
    """Delete measured links between two regions: they would override the region's, now entered."""
    cluster = regions.cluster
    region_of = cluster.region_of
    for link in Link.unscoped.filter(cluster=cluster, origin=Origin.MEASURED):
        ends = region_of.get(link.source), region_of.get(link.target)
        if ends == (regions.source, regions.target):
            delete(link)


def _rename_in_network(node: Node, *, old: str, new: str) -> None:
    if new == old:
        return
    if node.uuid is not None:
        raise Conflicting(
            _(
                "Node %(old)s has joined and keeps its name, since plans refer to it by "
                "name; delete it and join again under the new name."
            )
            % {"old": repr(old)}
        )
    for end in ("source", "target"):
        Link.unscoped.filter(cluster=node.cluster, **{end: old}).update(**{end: new})
    _replace_members(node.cluster_id, {old: new})


def forget_members(cluster_id: int, names: Collection[str]) -> None:
    """Remove deleted nodes from shared links; a shared link without members is deleted."""
    _replace_members(cluster_id, dict.fromkeys(names))


def _replace_members(cluster_id: int, new_names: Mapping[str, str | None]) -> None:
    """Call it in a transaction. None: the member is left out."""
    for row in SharedBandwidth.unscoped.select_for_update().filter(cluster=cluster_id):
        members = [name for old in row.members if (name := new_names.get(old, old)) is not None]
        if not members:
            row.delete()
        elif members != row.members:
            row.members = members
            row.save(update_fields=["members"])


def _announce(row: Any, action: Change.Action) -> None:
    if type(row) not in FOLLOWED:
        return
    event, what = FOLLOWED[type(row)]
    said = sentence(_SAID[action], what=what, name=str(row))
    if event != "node":
        events.emit(f"cluster:{row.cluster_id}", event, said)
    elif action is Change.Action.REMOVED:
        data = {"name": row.name, "state": "removed", **said}
        events.emit(f"cluster:{row.cluster_id}", "node", data)
    else:
        announce(row, now=timezone.now(), said=said)
