"""Pages offer nobody what the gate would refuse."""

import re
from collections.abc import Iterator
from functools import cache, partial
from html.parser import HTMLParser
from urllib.parse import urljoin, urlsplit

import pytest
from django.core.exceptions import PermissionDenied
from django.http import Http404
from django.test import Client, RequestFactory
from django.urls import Resolver404, resolve

from helixweb.access import gate
from helixweb.access.models import Grant
from helixweb.access.templatetags.access import browser_in_words
from tests.e2e.pages import PAGES
from tests.helixweb.looking import browser_of, tight
from tests.helixweb.test_role_matrix import World


class Offers(HTMLParser):
    """What can be opened and sent from a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "a" and given.get("href"):
            self.found.append(("GET", str(given["href"])))
        if tag == "form":
            method = str(given.get("method", "get")).upper()
            if method != "DIALOG":
                self.found.append((method, str(given.get("action") or "")))


def offered(client: Client, pages: list[str]) -> Iterator[tuple[str, str, str]]:
    """(page, method, path) of all that pages offer whoever may open them."""
    for page in pages:
        answer = client.get(page)
        if answer.status_code != 200:
            continue
        offers = Offers()
        offers.feed(answer.content.decode())
        for method, address in offers.found:
            url = urlsplit(urljoin(f"http://testserver{page}", address))
            if url.netloc == "testserver":
                yield page, method, url.path


def is_refused(user: object, method: str, path: str) -> bool:
    try:
        match = resolve(path)
    except Resolver404:
        return False
    request = RequestFactory().generic(method, path)
    request.user, request.resolver_match = user, match  # type: ignore[assignment]
    try:
        gate.admit(request)
    except PermissionDenied:
        return True
    except Http404:
        return False
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
    pages = [page.format(cluster=world.ids["cluster"], **ids) for page in PAGES]
    asked = cache(partial(is_refused, user))
    refused = {
        f"{page}: {method} {path}"
        for page, method, path in offered(client, pages)
        if asked(method, path)
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
