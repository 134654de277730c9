"""Gives roles to users and groups, and takes them back; their open streams are reconnected."""

from collections.abc import Iterable
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.db import transaction
from django.utils.translation import gettext as _

from helixweb.access import audit, guessing
from helixweb.access.models import Grant
from helixweb.access.roles import Role
from helixweb.access.scope import rights_of_request
from helixweb.access.signals import rights_changed
from helixweb.common import events
from helixweb.common.actor import current_request


class NoHolder(ValueError):
    """The name is of no user or group, or of several; the message is for the user."""


def holder_named(name: str, *, kinds: tuple[str, ...] = ("user", "group")) -> Any:
    """The only user or group with that name. Raises NoHolder."""
    request = current_request()
    user = getattr(request, "user", None)
    is_outsider = (
        request is not None
        and user is not None
        and rights_of_request(request).site < Role.VIEWER.rank
    )
    if is_outsider and guessing.must_stop_naming(user):
        raise NoHolder(
            _("You named several people who are not on this site; ask a site administrator.")
        )
    found: list[Any] = []
    if "user" in kinds:
        found += get_user_model().objects.filter(username=name)
    if "group" in kinds:
        found += Group.objects.filter(name=name)
    if len(found) == 1:
        return found[0]
    if is_outsider:
        guessing.note_unknown_name(user, name)
        raise NoHolder(
            _("%(name)s cannot be given a role here; ask a site administrator.") % {"name": name}
        )
    if found:  # people of single sign-on choose their names elsewhere
        raise NoHolder(
            _("%(name)s is a user and a group; give the role on the page of the one you mean.")
            % {"name": name}
        )
    raise NoHolder(_("There is no user and no group %(name)s; let them in first.") % {"name": name})


def give(holder: Any, role: str, *, cluster: Any = None) -> Grant:
    """Give `holder`, a user or a group, the role instead of its previous one there."""
    owner = {"group": holder} if isinstance(holder, Group) else {"user": holder}
    with transaction.atomic():
        grant = Grant.objects.filter(**owner, cluster=cluster).first()
        before = None if grant is None else {"role": grant.role}
        grant = grant or Grant(**owner, cluster=cluster)
        if grant.role == role:
            return grant
        grant.role = Role(role).value
        grant.save()
        _note(grant, "added" if before is None else "changed", before, {"role": grant.role})
        tell_changed(_people_of(grant))
    return grant


def withdraw(grant: Grant) -> None:
    """Take the role away from its holder."""
    with transaction.atomic():
        people = _people_of(grant)
        _note(grant, "removed", {"role": grant.role}, None)
        grant.delete()
        tell_changed(people)


def set_members(group: Group, members: Iterable[Any]) -> None:
    """Make these users the only members of the group."""
    with transaction.atomic():
        before = {user.pk: user.get_username() for user in group.user_set.all()}
        after = {user.pk: user.get_username() for user in members}
        if before == after:
            return
        group.user_set.set(list(after))
        named = [{"members": sorted(names.values())} for names in (before, after)]
        audit.note_row(group, "changed", before=named[0], after=named[1])
        tell_changed(before.keys() ^ after.keys())


def make_group(name: str) -> Group:
    """Create an empty group. Its name must be free."""
    with transaction.atomic():
        group = Group.objects.create(name=name)
        audit.note_row(group, "added")
    return group


def delete_group(group: Group) -> None:
    """Delete a group and the roles it gave."""
    with transaction.atomic():
        people = set(group.user_set.values_list("pk", flat=True))
        audit.note_row(group, "removed")
        group.delete()
        tell_changed(people)


def tell_changed(user_ids: Iterable[int]) -> None:
    """Have coordinators reload the keys they admit, and end open streams of these users."""
    end_streams(user_ids)
    rights_changed.send(sender=Grant)


def end_streams(user_ids: Iterable[int]) -> None:
    """End the open streams of these users: their pages reconnect, and are refused if need be."""
    for user_id in user_ids:
        events.emit(topic_of(user_id), "rights", {})


def topic_of(user_id: int) -> str:
    """The topic of events that end the streams of one user."""
    return f"rights:{user_id}"


def _people_of(grant: Grant) -> list[int]:
    if grant.user_id is not None:
        return [grant.user_id]
    return list(grant.group.user_set.values_list("pk", flat=True)) if grant.group else []


def _note(grant: Grant, action: str, before: Any, after: Any) -> None:
    holder = grant.user or grant.group
    kind = "user" if grant.user_id is not None else "group"
    audit.note(
        "grant",
        f"{kind} {holder} on {grant.cluster or 'the site'}",
        action,
        row_id=grant.pk,
        cluster_id=grant.cluster_id,
        before=before,
        after=after,
    )
