"""Users. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypedDict, Unpack, cast

from helixweb.client.connection import Connection, Page, Tagged, path_part, with_commas
from helixweb.client.generated import schemas


class UsersFilters(TypedDict, total=False):
    """Query parameters of GET /users/."""

    fields: list[Literal['date_joined', 'grants', 'groups', 'id', 'is_active', 'is_superuser', 'last_login', 'login_link', 'username']]
    is_active: bool
    is_superuser: bool
    limit: int
    offset: int
    ordering: list[Literal['id', '-id', 'username', '-username', 'is_active', '-is_active', 'is_superuser', '-is_superuser', 'last_login', '-last_login', 'date_joined', '-date_joined']]
    q: str
    username: str
    username__in: list[str]


class Users:
    """Operations under /api/v1/users."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, **filters: Unpack[UsersFilters]) -> Page[schemas.User]:
        """People; POST lets somebody in, PATCH keeps them out or lets them in again."""
        answer = self._connection.call("GET", "/users/", query=with_commas(dict(filters), 'fields', 'ordering', 'username__in'))
        return Page(count=answer["count"], results=answer["results"])

    def all(self, **filters: Unpack[UsersFilters]) -> Iterator[schemas.User]:
        """The same, of all pages one after the other; `limit` ends it early."""
        return self._connection.pages("/users/", query=with_commas(dict(filters), 'fields', 'ordering', 'username__in'))

    def create(self, body: schemas.UserRequest, *, idempotency_key: str | None = None) -> schemas.User:
        """Make the user, and a link that logs in once."""
        return cast('schemas.User', self._connection.call('POST', "/users/", body=body, headers={'Idempotency-Key': idempotency_key}))

    def get(self, id: int, *, fields: list[Literal['date_joined', 'grants', 'groups', 'id', 'is_active', 'is_superuser', 'last_login', 'login_link', 'username']] | None = None) -> schemas.User:
        """People; POST lets somebody in, PATCH keeps them out or lets them in again."""
        return cast('schemas.User', self._connection.call('GET', f"/users/{path_part(id)}/", query=with_commas({'fields': fields}, 'fields')))

    def get_tagged(self, id: int) -> Tagged[schemas.User]:
        """The same with its ETag, for `if_match`."""
        return self._connection.tagged(f"/users/{path_part(id)}/")

    def update(self, id: int, body: schemas.PatchedUserChangeRequest | None = None, *, if_match: str | None = None) -> schemas.User:
        """Keep the user out, or let them in again."""
        return cast('schemas.User', self._connection.call('PATCH', f"/users/{path_part(id)}/", body=body, headers={'If-Match': if_match}))

    def log_out(self, id: int, *, idempotency_key: str | None = None) -> schemas.Ended:
        """End every log-in of the user."""
        return cast('schemas.Ended', self._connection.call('POST', f"/users/{path_part(id)}/log-out/", headers={'Idempotency-Key': idempotency_key}))

    def login_link(self, id: int, *, idempotency_key: str | None = None) -> schemas.LoginLink:
        """A fresh link that logs in once."""
        return cast('schemas.LoginLink', self._connection.call('POST', f"/users/{path_part(id)}/login-link/", headers={'Idempotency-Key': idempotency_key}))
