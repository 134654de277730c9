"""Create, change and delete rows of the inventory by hand: checked, and announced to open pages."""

from typing import Any, TypeVar

from django.db import IntegrityError, models, transaction
from django.db.models import ProtectedError, RestrictedError
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from helixweb.common import events
from helixweb.common.sentences import sentence
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
from helixweb.inventory.services.errors import Conflicting, NameTaken
from helixweb.inventory.services.joining import announce
from helixweb.inventory.services.problems import compute_profile, domain_link
from helixweb.inventory.services.shared_bandwidths import (
    check_members,
    forget_members,
    rename_member,
)
from planner.domain.cluster import COORDINATOR
from planner.domain.errors import InvalidProblem

Row = TypeVar("Row", bound=models.Model)
# What open pages are told of a row, by its kind.
_SAID: dict[tuple[type[models.Model], ...], dict[Change.Action, str]] = {
    (Node,): {
        Change.Action.ADDED: gettext_noop("Node %(name)s was added."),
        Change.Action.CHANGED: gettext_noop("Node %(name)s was changed."),
        Change.Action.REMOVED: gettext_noop("Node %(name)s was removed."),
    },
    (Coordinator,): {
        Change.Action.ADDED: gettext_noop("Coordinator %(name)s was added."),
        Change.Action.CHANGED: gettext_noop("Coordinator %(name)s was changed."),
        Change.Action.REMOVED: gettext_noop("Coordinator %(name)s was removed."),
    },
    (Link, RegionLink): {
        Change.Action.ADDED: gettext_noop("Link %(name)s was added."),
        Change.Action.CHANGED: gettext_noop("Link %(name)s was changed."),
        Change.Action.REMOVED: gettext_noop("Link %(name)s was removed."),
    },
    (SharedBandwidth,): {
        Change.Action.ADDED: gettext_noop("Shared bandwidth %(name)s was added."),
        Change.Action.CHANGED: gettext_noop("Shared bandwidth %(name)s was changed."),
        Change.Action.REMOVED: gettext_noop("Shared bandwidth %(name)s was removed."),
    },
    (Profile,): {
        Change.Action.ADDED: gettext_noop("Profile %(name)s was added."),
        Change.Action.CHANGED: gettext_noop("Profile %(name)s was changed."),
        Change.Action.REMOVED: gettext_noop("Profile %(name)s was removed."),
    },
}


def create(row_type: type[Row], **fields: Any) -> Row:
    """A new row. Raises InvalidProblem, NameTaken."""
    row = row_type(**fields)
    _save(row, before=None)
    return row


def update(row: Row, **changes: Any) -> Row:
    """Change fields of a row. Raises InvalidProblem, NameTaken, Conflicting."""
    with transaction.atomic():
        # Read anew: a form may have written into `row` already.
        before = values_of(type(row)._default_manager.get(pk=row.pk))
        if isinstance(row, Node):
            _rename_in_network(row, old=before["name"], new=changes.get("name", row.name))
        for name, value in changes.items():
            setattr(row, name, value)
        _save(row, before=before)
    return row


def delete(
    row: Cluster
    | Coordinator
    | LanguageModel
    | Link
    | Node
    | Profile
    | RegionLink
    | SharedBandwidth,
) -> None:
    """Remove a row and what hangs on it; a node takes its links along. Raises Conflicting."""
    with transaction.atomic():
        if isinstance(row, Node):
            named = models.Q(source=row.name) | models.Q(target=row.name)
            Link.objects.filter(named, cluster=row.cluster).delete()
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
    _check(row)
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
    """Of these two regions: they would count instead of what a person entered for all."""
    cluster = regions.cluster
    region_of = dict(cluster.nodes.values_list("name", "region"))
    region_of[COORDINATOR] = cluster.coordinator_region
    for link in Link.objects.filter(cluster=cluster, origin=Origin.MEASURED):
        ends = region_of.get(link.source), region_of.get(link.target)
        if ends == (regions.source, regions.target):
            delete(link)


def _check(row: models.Model) -> None:
    """What one field alone cannot tell."""
    if isinstance(row, Node):
        _check_profile_name(row)
    elif isinstance(row, Link):
        _check_ends(row)
    elif isinstance(row, RegionLink):
        domain_link(row)
    elif isinstance(row, SharedBandwidth):
        check_members(row)
    elif isinstance(row, Profile):
        compute_profile(row)


def _check_profile_name(node: Node) -> None:
    known = sorted(set(node.cluster.profiles.values_list("name", flat=True)))
    if node.profile_name and node.profile_name not in known:
        raise InvalidProblem(
            _(
                "node %(name)s: the cluster has no compute profile %(profile_name)s; "
                "leave it empty or choose one of: %(names)s"
            )
            % {
                "name": repr(node.name),
                "profile_name": repr(node.profile_name),
                "names": ", ".join(known) or _("none yet"),
            }
        )


def _check_ends(link: Link) -> None:
    domain_link(link)
    known = {COORDINATOR, *link.cluster.nodes.values_list("name", flat=True)}
    for end in (link.source, link.target):
        if end not in known:
            raise InvalidProblem(
                _(
                    "link %(link)s: %(end)s is not a node of cluster %(name)s; name one of "
                    "its nodes or %(coordinator)s"
                )
                % {
                    "link": link,
                    "end": repr(end),
                    "name": repr(link.cluster.name),
                    "coordinator": repr(COORDINATOR),
                }
            )
    if link.source == link.target:
        raise InvalidProblem(
            _("link %(link)s joins a node to itself; choose two different ends") % {"link": link}
        )


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
        Link.objects.filter(cluster=node.cluster, **{end: old}).update(**{end: new})
    rename_member(node.cluster, old=old, new=new)


def _announce(row: models.Model, action: Change.Action) -> None:
    if not isinstance(row, Node | Coordinator | Link | RegionLink | SharedBandwidth | Profile):
        return
    messages = next(said for kinds, said in _SAID.items() if isinstance(row, kinds))
    if not isinstance(row, Node | Coordinator):
        type_ = "model" if isinstance(row, Profile) else "link"
        events.emit(f"cluster:{row.cluster_id}", type_, sentence(messages[action], name=str(row)))
        return
    said = sentence(messages[action], name=row.name)
    if action is Change.Action.REMOVED:
        data = {"name": row.name, "state": "removed", **said}
        events.emit(f"cluster:{row.cluster_id}", "node", data)
    else:
        announce(row, now=timezone.now(), said=said)
