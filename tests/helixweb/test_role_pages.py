"""Every page, asked for by every role, on its own cluster, on another one, and on the site."""

from functools import cache
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404
from django.test import RequestFactory
from django.urls import get_resolver, resolve

from helixweb.access import gate
from helixweb.access.models import Grant
from helixweb.access.needs import Needs, declared_by, needs_of, view_named
from helixweb.access.permissions import MayDo
from helixweb.access.roles import Role
from helixweb.access.scope import cluster_of
from helixweb.inventory.models import Node
from tests.helixweb.looking import answered, browser_of
from tests.helixweb.page_table import NOT_ASKED, PAGES
from tests.helixweb.test_access import filled, templates
from tests.helixweb.test_role_matrix import (
    ALLOWED,
    HIDDEN,
    ORDER,
    REFUSED,
    World,
    expected,
    word_of,
)

NO_PAGES = NOT_ASKED | {"schema", "api-unknown"}
EVERY_PAGE = {
    name: template
    for name, template in templates(get_resolver().url_patterns)
    if name not in NO_PAGES and not template.startswith("/api/v1/")
}


def test_every_page_stands_in_the_table_and_no_other() -> None:
    assert set(EVERY_PAGE) == set(PAGES)


def test_the_views_declare_what_the_table_says() -> None:
    declared = {}
    for name in EVERY_PAGE:
        found = needs_of(view_named(name))
        declared[name] = (word_of(found.look), word_of(found.change))
    assert declared == PAGES


def test_every_url_declares_what_it_needs_or_is_no_users() -> None:
    for name, template in templates(get_resolver().url_patterns):
        view = resolve(filled(template)).func
        if declared_by(view) is not None or not getattr(view, "login_required", True):
            continue
        asked = getattr(view, "cls", None)
        assert asked is not None, name
        assert MayDo not in asked.permission_classes, name


def test_every_page_with_a_row_of_a_cluster_says_which() -> None:
    """Else the gate could not tell those who may from those who may not."""
    unsaid = {
        name
        for name, template in EVERY_PAGE.items()
        if "<int" in template and not named(template).of
    }
    of_people = {"user", "user-keep-out", "user-let-in", "user-log-out", "group", "group-delete"}
    of_oneself = {"api-key-revoke", "session-end"}
    assert unsaid <= of_people | of_oneself | {"model"}, unsaid


def named(template: str) -> Needs:
    return needs_of(resolve(filled(template)).func)


def address(world: World, template: str) -> tuple[str, int | None]:
    """With the arguments of a row that there is, and its cluster."""
    declared = named(template)
    model = declared.of and declared.model
    if not hasattr(model, "cluster_path"):
        return filled(template), None
    found = model._base_manager.order_by("pk").first()
    if found is None:
        assert model is Grant or model.__name__ == "Silence", model
        return filled(template), None
    path = template.replace(f"<int:{declared.by}>", str(found.pk), 1)
    return filled(path), cluster_of(model, pk=found.pk)


def asked(path: str, method: str, user: Any) -> int:
    request = RequestFactory().generic(method, path)
    request.user, request.resolver_match = user, resolve(path)
    try:
        gate.admit(request)
    except PermissionDenied:
        return REFUSED
    except Http404:
        return HIDDEN
    return ALLOWED


def test_every_page_is_for_whom_the_table_says(world: World) -> None:
    wrong = []
    people = cache(world.people)
    for name, (look, change) in PAGES.items():
        path, cluster = address(world, EVERY_PAGE[name])
        for method, need in (("GET", look), ("POST", change)):
            if need is None:
                continue
            needs = (need,) if isinstance(need, str) else need
            for person in people(cluster or world.ids["cluster"]):
                outcomes = [expected(one, person, has_row=cluster is not None) for one in needs]
                right = min(outcomes, key=ORDER.index)
                if (status := asked(path, method, person.user)) != right:
                    wrong.append(f"{method} {path} ({name}) of {person}: {status}, not {right}")
    assert not wrong, "\n".join(wrong[:40])


def test_pages_pass_the_gate_on_their_way(world: World) -> None:
    """The whole way through the site, for somebody without any role."""
    client = browser_of(world.person("", "site"))
    for name, (look, change) in PAGES.items():
        path, _ = address(world, EVERY_PAGE[name])
        for ask, need in ((client.get, look), (client.post, change)):
            if need not in (None, "own"):
                assert ask(path).status_code in (403, 404), (name, path)


def test_pages_tell_nothing_of_a_cluster_that_one_may_not_see(world: World) -> None:
    Node.objects.create(cluster=world.other, name="lonely")
    client = browser_of(world.person("operator", "other"))
    for name, (look, _) in PAGES.items():
        template = EVERY_PAGE[name]
        if look not in ("viewer", "operator", "own") or "<" in template:
            continue
        for headers in ({}, {"HX-Request": "true"}):  # the page, and the part that it fetches
            answer = client.get(template, headers=headers)
            content = b"" if answer.streaming else answer.content
            for known in (b"world-person", b"world-model"):  # of the site, not of a cluster
                content = content.replace(known, b"")
            assert b"world-" not in content, name
    assert b"lonely" in client.get("/nodes/").content
    answered(client.get(f"/events?topics=cluster:{world.ids['cluster']}"), 400)
    answered(client.get(f"/events?topics=cluster:{world.other.pk}"), 200)


def test_a_chart_that_somebody_else_had_drawn_is_not_shown_from_the_cache(world: World) -> None:
    path = f"/monitor/chart/heat/?cluster={world.ids['cluster']}"
    assert browser_of(world.admin).get(path).status_code == 200
    assert browser_of(world.person("operator", "other")).get(path).status_code == 404


def test_a_viewer_of_one_cluster_and_operator_of_another_names_rows_of_both(world: World) -> None:
    """What one may see but not change is refused when a body names it; what one may not see is
    not there."""
    user = world.person("", "site")
    Grant.objects.create(user=user, cluster_id=world.ids["cluster"], role=Role.VIEWER)
    Grant.objects.create(user=user, cluster=world.other, role=Role.OPERATOR)
    client = world.client(user)
    new = {"name": "fresh", "region": "home"}
    made = answered(client.post("/api/v1/nodes/", {**new, "cluster": world.other.pk}), 201)
    answered(client.post("/api/v1/nodes/", {**new, "cluster": world.ids["cluster"]}), 403)
    hidden = answered(client.post("/api/v1/nodes/", {**new, "cluster": world.ids["trouble"]}), 400)
    assert "does not exist" in hidden.json()["detail"]
    moved = client.patch(f"/api/v1/nodes/{made.json()['id']}/", {"cluster": world.ids["cluster"]})
    assert moved.status_code in (400, 403)
    many = client.post("/api/v1/nodes/bulk/", {"nodes": [world.ids["node"]], "region": "moon"})
    assert many.status_code == 403
