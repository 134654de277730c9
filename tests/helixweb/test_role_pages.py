"""Every page, asked for by every role, on its own cluster, on another one, and on the site; pages
offer no user what the gate would refuse."""

import re
from collections.abc import Iterator
from functools import cache, partial
from typing import Any
from urllib.parse import urljoin, urlsplit

import pytest
from django.core.exceptions import PermissionDenied
from django.http import Http404
from django.test import Client, RequestFactory
from django.urls import Resolver404, get_resolver, resolve

from helixweb.access import gate
from helixweb.access.models import Grant
from helixweb.access.needs import Needs, declared_by, needs_of, view_named
from helixweb.access.permissions import MayDo
from helixweb.access.roles import Role
from helixweb.access.scope import cluster_of
from helixweb.access.templatetags.access import browser_in_words
from helixweb.inventory.models import Node
from tests.e2e.pages import PAGES as ADDRESSES
from tests.helixweb.looking import answered, browser_of, elements, tight
from tests.helixweb.page_table import NOT_ASKED, PAGES
from tests.helixweb.test_access import filled, templates
from tests.helixweb.test_role_matrix import ALLOWED, HIDDEN, REFUSED, World, due, word_of

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
            for person in people(cluster or world.ids["cluster"]):
                right = due(need, person, has_row=cluster is not None)
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


def offers(html: str) -> Iterator[tuple[str, str]]:
    """What can be opened and sent from a page."""
    for tag, given in elements(html):
        method = given.get("method", "get").upper()
        if tag == "a" and given.get("href"):
            yield "GET", given["href"]
        elif tag == "form" and method != "DIALOG":
            yield method, given.get("action", "")


def offered(client: Client, pages: list[str]) -> Iterator[tuple[str, str, str]]:
    """(page, method, path) of all that pages offer a user who may open them."""
    for page in pages:
        answer = client.get(page)
        if answer.status_code != 200:
            continue
        for method, address in offers(answer.content.decode()):
            url = urlsplit(urljoin(f"http://testserver{page}", address))
            if url.netloc == "testserver":
                yield page, method, url.path


def is_refused(user: object, method: str, path: str) -> bool:
    try:
        return asked(path, method, user) == REFUSED
    except Resolver404:
        return False


@pytest.mark.parametrize(
    ("role", "where"),
    [
        ("viewer", "row"), ("operator", "site"),
        pytest.param("viewer", "site", marks=pytest.mark.long),
        pytest.param("operator", "row", marks=pytest.mark.long),
    ],
)  # fmt: skip
def test_nothing_is_offered_that_would_be_refused(world: World, role: str, where: str) -> None:
    user = world.person(role, where)
    ids = {key: value for key, value in world.ids.items() if key != "cluster"}
    client = browser_of(user)
    pages = [page.format(cluster=world.ids["cluster"], **ids) for page in ADDRESSES]
    is_no = cache(partial(is_refused, user))
    refused = {
        f"{page}: {method} {path}"
        for page, method, path in offered(client, pages)
        if is_no(method, path)
    }
    assert refused == set(), "\n".join(sorted(refused))


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (
            "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) "
            "Chrome/141.0.0.0 Safari/537.36",
            "Chrome 141, Linux",
        ),
        (
            "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) "
            "Chrome/141.0.0.0 Safari/537.36 Edg/141.0.0.0",
            "Edge 141, Windows",
        ),
        (
            "Mozilla/5.0 (iPhone; CPU iPhone OS 18_6 like Mac OS X) AppleWebKit/605.1.15 "
            "(KHTML, like Gecko) Version/18.6 Mobile/15E148 Safari/604.1",
            "Safari 18, iOS",
        ),
        (
            "Mozilla/5.0 (X11; Linux x86_64; rv:144.0) Gecko/20100101 Firefox/144.0",
            "Firefox 144, Linux",
        ),
        ("curl/8.5.0", "curl/8.5.0"),
        ("", ""),
    ],
)  # fmt: skip
def test_a_browser_is_told_in_words(header: str, words: str) -> None:
    assert browser_in_words(header) == words


def test_whoever_takes_a_role_back_on_a_clusters_page_stays_there(world: World) -> None:
    cluster = world.ids["cluster"]
    grant = Grant.objects.create(user=world.admin, cluster_id=cluster, role="viewer")
    client = browser_of(world.admin)
    answer = client.post(f"/settings/grants/{grant.pk}/withdraw", {"from": "cluster"})
    assert answer.headers["Location"] == f"/clusters/{cluster}/access/"


def test_a_viewer_is_told_why_there_is_nothing_to_press(world: World) -> None:
    cluster = world.ids["cluster"]
    user = world.person("viewer", "row")
    Grant.objects.create(user=user, cluster=world.other, role="operator")
    client = browser_of(user)
    page = tight(client.get(f"/clusters/{cluster}/").content.decode())
    assert re.search(r'class="badge plain"[^>]*title="[^"]*not shown[^"]*"[^>]*>viewer<', page)
    elsewhere = client.get(f"/clusters/{world.other.pk}/").content.decode()
    assert "not shown" not in elsewhere
    assert f"/clusters/{world.other.pk}/edit" in elsewhere


def test_a_viewer_of_a_node_is_shown_its_links_and_offered_no_change(world: World) -> None:
    cluster, node = world.ids["cluster"], world.ids["node"]
    for role, words, edits in (("viewer", "All links", 0), ("operator", "Edit", 2)):
        client = browser_of(world.person(role, "row"))
        page = tight(client.get(f"/clusters/{cluster}/nodes/{node}/").content.decode())
        assert re.search(rf'#links">{words}</a>', page), role
        assert page.count(">Edit<") == edits, role
