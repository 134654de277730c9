"""Finds the user or group that a role is given to, by name.

Administrators of single clusters may give roles, but must not learn who else uses the site: what
they read does not depend on whether a name is a user's, a group's or unknown, and after a few
unknown names they must wait.
"""

from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.utils.translation import gettext as _

from helixweb.access import guessing
from helixweb.access.rights import rights_of_request
from helixweb.access.roles import Role
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
