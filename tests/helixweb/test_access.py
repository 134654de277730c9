"""Who may see what: nobody anything, but health, the login and a machine with a join token."""

import contextlib
import itertools
import re
from collections.abc import Iterator

import pytest
from django.contrib.admindocs.views import simplify_regex
from django.core.cache import cache
from django.template.loader import render_to_string
from django.test import Client
from django.urls import Resolver404, URLPattern, URLResolver, get_resolver, resolve
from django.urls.resolvers import RoutePattern

from helixweb.inventory.models import Cluster
from tests.helixweb.looking import answered
from tests.helixweb.page_table import NOT_ASKED

OPEN = {
    "healthz": "health",
    "readyz": "health",
    "login": "how one gets credentials",
    "login-link": "how one gets credentials",
    "join-script": "a bare machine has no credentials; it holds no secret",
    "join-source": "a bare machine has no credentials; it is under a public licence",
    "sso-begin": "how one gets credentials",
    "sso-callback": "how one gets credentials",
    "agent-register": "the join token in its body is the credential",
}
METHODS = ("get", "post", "put", "patch", "delete")


def templates(
    patterns: list[URLPattern | URLResolver], prefix: str = "/"
) -> Iterator[tuple[str, str]]:
    """(name, path with <arguments>) of every URL of the site."""
    for pattern in patterns:
        if isinstance(pattern.pattern, RoutePattern):
            path = prefix + str(pattern.pattern)
        else:
            path = prefix + simplify_regex(str(pattern.pattern)).lstrip("/")
        if isinstance(pattern, URLResolver):
            yield from templates(pattern.url_patterns, path)
        else:
            yield pattern.name or "", path


def filled(template: str) -> str:
    """The template with arguments of a kind that the URL accepts."""
    parts = re.split(r"<[^>]+>", template)
    for words in itertools.product(("1", "flow-diagram", "heat", "x"), repeat=len(parts) - 1):
        path = "".join(itertools.chain(*itertools.zip_longest(parts, words, fillvalue="")))
        with contextlib.suppress(Resolver404):
            resolve(path)
            return path
    raise AssertionError(f"no argument fits {template}; add one to the words tried here")


def paths(patterns: list[URLPattern | URLResolver]) -> Iterator[tuple[str, str]]:
    """(name, path) of every URL of the site."""
    for name, template in templates(patterns):
        yield name, filled(template)


EVERY_URL = sorted(set(paths(get_resolver().url_patterns)))


@pytest.mark.django_db
def test_without_credentials_a_url_answers_only_with_a_refusal() -> None:
    client, wrong = Client(), []
    closed = [path for name, path in EVERY_URL if name not in OPEN]
    for path, method in itertools.product(closed, METHODS):
        cache.clear()  # a stranger who asks so much is throttled
        response = getattr(client, method)(path)
        refusals = (401, 403) if method == "get" else (401, 403, 405)
        to_login = response.headers.get("Location", "").startswith("/login/?next=")
        if response.status_code not in refusals and (response.status_code, to_login) != (302, True):
            wrong.append((method, path, response.status_code))
    assert not wrong


def test_what_is_only_looked_at_takes_no_other_method(browser: Client) -> None:
    for name, path in EVERY_URL:
        if name in NOT_ASKED - {"login", "login-link"}:
            answered(browser.post(path), 405)
        if name in NOT_ASKED:
            answered(browser.delete(path), 405)


@pytest.mark.django_db
def test_unknown_objects_are_not_found(browser: Client) -> None:
    for path in (
        "/?cluster=99", "/?cluster=x", f"/?cluster={'9' * 30}", "/clusters/99/", "/models/99/",
        "/clusters/99/nodes/1/", "/clusters/99/network/", "/plans/999/", "/deployments/77/",
        "/deployments/new", "/deployments/new?plan=7", "/monitor/?cluster=99",
        "/monitor/?cluster=%E0%A5%A9", f"/requests/{9:016x}/", f"/api/v1/requests/{9:016x}/",
    ):  # fmt: skip
        assert browser.get(path).status_code == 404, path
    assert browser.post("/plans/999/cancel").status_code == 404


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/deployments/", "Nothing is deployed yet"), ("/monitor/", "no cluster to watch"),
        ("/plans/", "Compute the first plan"), ("/plans/new", "no cluster to plan for yet"),
        ("/requests/", "playground"), ("/clusters/", "No clusters yet"),
        ("/models/", "No models yet"), ("/nodes/", "No nodes yet"),
    ],
)  # fmt: skip
def test_pages_of_an_empty_site_say_how_to_begin(browser: Client, path: str, words: str) -> None:
    assert words in browser.get(path).content.decode()


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("/", "<h1>Overview</h1>"),
        ("/clusters/{cluster}/", 'id="live-part"'),
        ("/clusters/{cluster}/", "12 of 12 directed pairs"),
        ("/clusters/{cluster}/nodes/{node}/", 'id="live-part"'),
        ("/clusters/{cluster}/network/", '<main id="content"'),
    ],
)
def test_a_part_that_changes_is_fetched_without_the_page_around_it(
    browser: Client, cluster: Cluster, path: str, part: str
) -> None:
    """Nor a style, whose nonce is another than that of the page that parses it."""
    address = path.format(cluster=cluster.pk, node=cluster.nodes.get(name="mini").pk)
    fetched = browser.get(address, headers={"HX-Request": "true"}).content.decode()
    assert part in fetched
    assert "<html" not in fetched or path.endswith("/network/"), "which is fetched whole"
    assert "<style" not in fetched


@pytest.mark.django_db
def test_a_part_of_a_page_without_a_session_has_the_whole_page_reload() -> None:
    answer = Client().get("/", headers={"HX-Request": "true"})
    assert (answer.status_code, answer.headers["HX-Refresh"]) == (401, "true")


@pytest.mark.django_db
def test_errors_are_pages_that_say_what_to_do(browser: Client) -> None:
    assert b"may have been deleted" in browser.get("/clusters/99/").content
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = browser.cookies
    assert b"reload the page and send it again" in strict.post("/clusters/new").content
    assert b"HELIX_HOSTS" in browser.get("/", headers={"Host": "other.example"}).content
    assert b"log says what happened" in render_to_string("500.html").encode()
