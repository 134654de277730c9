"""REST: the default permission of every view for people and their keys."""

from typing import TYPE_CHECKING

from rest_framework import exceptions, permissions
from rest_framework.request import Request

from helixweb.access import gate
from helixweb.access.needs import OWN, SAFE, need_of
from helixweb.access.roles import Role
from helixweb.common.auth import ADMIN, READ, WRITE
from helixweb.common.models import ApiKey

if TYPE_CHECKING:  # at run time rest_framework.views imports the default permission
    from rest_framework.views import APIView


class MayDo(permissions.BasePermission):
    """Checks the scopes of the key, then the role of the user; see `gate.py`."""

    def has_permission(self, request: Request, view: "APIView") -> bool:
        if not (request.user and request.user.is_authenticated):
            return False
        if isinstance(request.auth, ApiKey):
            _check_scopes(request, request.auth)
        model = getattr(getattr(view, "queryset", None), "model", None)
        lookup = getattr(view, "lookup_field", "pk")
        argument = getattr(view, "lookup_url_kwarg", None) or lookup
        try:
            rights = gate.admit(request._request, model=model, lookup=lookup, argument=argument)
        except gate.RoleNeeded as error:
            raise exceptions.PermissionDenied(str(error)) from error
        request._request.helix_reads_as = (  # type: ignore[attr-defined]  # see common/rest
            request.user.pk, rights.as_key(), getattr(request._request, "helix_role", None),
        )  # fmt: skip
        return True


def _check_scopes(request: Request, key: ApiKey) -> None:
    """A key needs `read` for safe methods, `write` for others, `admin` too for what governs."""
    method = str(request.method)
    match = request._request.resolver_match
    needed = {READ if method in SAFE else WRITE}
    assert match is not None  # noqa: S101 - asked within a view
    need = need_of(match.func, method)
    governs = need.role is Role.ADMIN and need.or_of_site is None
    if governs or (need == OWN and method not in SAFE):
        needed.add(ADMIN)
    missing = sorted(needed - set(key.scopes))
    if missing:
        raise exceptions.PermissionDenied(
            f"This API key lacks the scope {' and '.join(missing)} for this action; "
            f"it has: {', '.join(sorted(key.scopes))}."
        )
