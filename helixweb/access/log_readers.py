"""Access to the change log: users read lines of rows that they may read. Only administrators and
the actor see the actor's network address and API key."""

from dataclasses import dataclass
from typing import Any, Self, TypeVar

from django.db.models import Model, Q, QuerySet

from helixweb.access.roles import NOTHING, Rights, Role
from helixweb.access.scope import Scope, rights_of_request

LineT = TypeVar("LineT", bound=Model)
# Kinds of lines about what needs more than to see the cluster.
_READ_BY = {"channel": Role.OPERATOR, "grant": Role.ADMIN}
# Of one user each; administrators of the site see those of others.
_PERSONAL = ("apikey", "session")
_PEOPLE = ("person", "key")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReader:
    """A user with the rights of one request."""

    rights: Rights
    username: str = ""

    @classmethod
    def of(cls, request: Any) -> Self:
        """The request's user; without a request, a reader without any rights."""
        if request is None:
            return cls(rights=NOTHING)
        return cls(rights=rights_of_request(request), username=request.user.get_username())

    @property
    def scope(self) -> Scope:
        """The clusters that the user may see."""
        return Scope(self.rights.where(Role.VIEWER))

    def lines(self, rows: QuerySet[LineT]) -> QuerySet[LineT]:
        """Lines that the user may read."""
        for kind, role in _READ_BY.items():
            clusters = self.rights.where(role)
            if clusters is not None:
                rows = rows.filter(~Q(kind=kind) | Q(cluster__in=clusters))
        if self.rights.site < Role.ADMIN.rank:
            rows = rows.filter(~Q(kind__in=_PERSONAL) | self._own)
        return rows

    def with_origin(self, rows: QuerySet[LineT]) -> QuerySet[LineT]:
        """Lines whose address and API key the user may read."""
        clusters = self.rights.where(Role.ADMIN)
        return rows if clusters is None else rows.filter(Q(cluster__in=clusters) | self._own)

    def address(self, line: Any) -> str:
        """Network address of the line's actor; "" if the user may not read it."""
        return str(line.address) if self._reads_origin_of(line) else ""

    def api_key(self, line: Any) -> str:
        """The public part of the actor's key; "" if the user may not read it."""
        return str(line.api_key) if self._reads_origin_of(line) else ""

    def _reads_origin_of(self, line: Any) -> bool:
        is_own = line.actor == self.username and line.actor_kind in _PEOPLE
        return is_own or self.rights.on(line.cluster_id) >= Role.ADMIN.rank

    @property
    def _own(self) -> Q:
        return Q(actor=self.username, actor_kind__in=_PEOPLE)
