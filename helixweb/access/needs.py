"""Roles and scopes that a view requires, declared as `@needs(VIEWER, OPERATOR, of=Cluster)`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, wraps
from typing import Any, TypeVar

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils.cache import add_never_cache_headers
from django.views.decorators.http import require_http_methods

from helixweb.access.roles import Role
from helixweb.common.queries import within

ViewT = TypeVar("ViewT", bound=Callable[..., Any])
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """The role on the row's cluster, or on the site if `of_site`; None: to be logged in.

    `or_of_site`: this one on the site does as well.
    """

    role: Role | None
    of_site: bool = False
    or_of_site: Role | None = None


VIEWER, OPERATOR, ADMIN = (Need(role=role) for role in Role)
SITE_VIEWER, SITE_OPERATOR, SITE_ADMIN = (Need(role=role, of_site=True) for role in Role)
# A user's own things; an API key may look at them, and with the scope `admin` change them.
OWN = Need(role=None)
# Users who may make clusters may also delete them.
DELETE_CLUSTER = Need(role=Role.ADMIN, or_of_site=Role.OPERATOR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a view's callers need. `look` applies to safe methods, `change` to all others; None: the
    view does not answer them.

    `of` is the model of the row that the URL argument `by` names; the row's cluster is checked.
    `actions` has the needs of single methods of a view of the REST API.
    """

    look: Need | None
    change: Need | None
    of: Any
    by: str
    actions: Mapping[str, Need]

    @property
    def model(self) -> Any:
        """`of`, which may be named as "app.Model"."""
        return apps.get_model(self.of) if isinstance(self.of, str) else self.of


def needs(
    look: Need | None = None,
    change: Need | None = None,
    *,
    of: Any = None,
    row: Any = None,
    by: str = "pk",
    **actions: Need,
) -> Callable[[ViewT], ViewT]:
    """Declare what a view needs; a function also answers no other methods than those declared, and
    what it only shows is kept by no cache.

    `row`: as `of`, and the function gets the row in place of its id.
    """
    of = row or of

    needed = Needs(look=look, change=change, of=of, by=by, actions=actions)

    def declare(view: ViewT) -> ViewT:
        declared: Any = view if row is None else _with_row(view, needed)
        if not isinstance(view, type):
            methods = ["GET"] * (look is not None) + ["POST"] * (change is not None)
            declared = require_http_methods(methods)(declared)
            if change is None:
                declared = _of_now(declared)
        declared.needs = needed
        return declared  # type: ignore[no-any-return]

    return declare


def _of_now(view: Callable[..., Any]) -> Callable[..., Any]:
    """The view; no cache keeps what it shows, unless it says how long."""

    @wraps(view)
    def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        response = view(request, *args, **kwargs)
        if not response.has_header("Cache-Control"):
            add_never_cache_headers(response)
        return response

    return answer


def _with_row(view: Callable[..., Any], needed: Needs) -> Callable[..., Any]:
    """The view, called with the row in the scope of the request that the URL names, or 404."""

    @wraps(view)
    def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        rows = within(needed.model.objects.all(), request)
        return view(request, get_object_or_404(rows, pk=kwargs.pop(needed.by)), *args, **kwargs)

    return answer


def declared_by(view: Any) -> Needs | None:
    """The needs that a URL's view declares; None without."""
    cls = getattr(view, "cls", None)
    return getattr(view, "needs", None) or getattr(cls, "needs", None)


def needs_of(view: Any) -> Needs:
    """The needs that a URL's view declares. Raises ImproperlyConfigured without."""
    found = declared_by(view)
    if found is None:
        raise ImproperlyConfigured(f"{view} does not say what it needs; decorate it with @needs.")
    return found


def need_of(view: Any, method: str) -> Need:
    """The need of a URL's view for the method."""
    declared = needs_of(view)
    action = str(getattr(view, "actions", {}).get(method.lower()))
    if action in declared.actions:
        return declared.actions[action]
    look, change = declared.look, declared.change
    # One of the two is there; the view itself refuses methods that it does not answer.
    return (look or change if method in SAFE else change or look) or SITE_ADMIN


def view_named(name: str) -> Any:
    """The view of the URL with that name."""
    return _views()[name]


@cache
def _views() -> dict[str, Any]:
    return {pattern.name or "": pattern.callback for pattern in _patterns(get_resolver())}


def _patterns(found: URLResolver | URLPattern) -> list[URLPattern]:
    if isinstance(found, URLPattern):
        return [found]
    return [pattern for each in found.url_patterns for pattern in _patterns(each)]
