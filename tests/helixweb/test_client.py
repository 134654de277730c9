"""The Python client: rows, pages of lists, refusals as exceptions."""

import copy
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from helixweb.client import (
    BadAddress,
    Client,
    Conflict,
    Malformed,
    NotAuthenticated,
    NotFound,
    NotTheApi,
    Problem,
    ServerFailed,
    TooManyRequests,
    Unreachable,
)
from helixweb.client.wire import plain_query, read_events
from helixweb.inventory.models import Cluster, Link, Node
from tests.docs.pages import DOCS, blocks
from tests.helixweb.rest_collections import openapi_document
from tests.helixweb.site_in_process import URL, client_of


@pytest.fixture
def client(user: Any) -> Iterator[Client]:
    with client_of(user) as one:
        yield one


def answering(answer: httpx.Response) -> Client:
    """A client whose server gives this one answer."""
    return Client(URL, transport=httpx.MockTransport(lambda request: answer))


def test_lists_in_queries_are_written_as_the_openapi_document_says() -> None:
    written = 0
    for path, operations in openapi_document()["paths"].items():
        for operation in operations.values():
            for one in operation.get("parameters", ()):
                if one["in"] == "query" and one["schema"].get("type") == "array":
                    joined = one.get("explode") is False
                    asked = plain_query({one["name"]: [1, 2]})
                    texts = asked.get_list(one["name"])
                    assert texts == (["1,2"] if joined else ["1", "2"]), (path, one["name"])
                    written += 1
    assert written > 100


def test_an_empty_list_is_refused_instead_of_matching_every_row(client: Client) -> None:
    with pytest.raises(Malformed) as refused:
        client.nodes.page(name__in=[])
    assert refused.value.errors[0].field == "name__in"


def test_actions_of_rows_and_of_collections_have_the_addresses_of_the_api(
    client: Client, cluster: Cluster, tiny_problem: dict[str, Any]
) -> None:
    made = client.clusters.do("import", body={"name": "copy", "problem": tiny_problem})
    assert client.clusters.read("problem", made["id"])["nodes"]
    model = client.models.page(limit=1).results[0]["id"]
    run = client.plan_runs.create({"cluster": cluster.pk, "model": model})
    assert list(client.plan_runs.rows("incumbents", run["id"])) == []
    assert client.plan_runs.do("cancel", run["id"])["status"] == "cancelled"
    assert client.call("GET", "/me/")["username"]


def test_private_names_are_no_collections(client: Client) -> None:
    assert not hasattr(client, "_repr_html_")
    assert copy.copy(client).url == URL


def test_a_list_longer_than_a_page_is_walked_to_its_end(
    client: Client, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("helixweb.client.PAGE_ROWS", 2)
    names = [node["name"] for node in client.nodes.all(cluster=cluster.pk)]
    assert names == ["tower", "laptop", "mini"]
    assert len(list(client.nodes.all(limit=1))) == 1
    assert [node["name"] for node in client.nodes.all(name="mini")] == ["mini"]
    page = client.nodes.page(cluster=cluster.pk, limit=1)
    assert (page.count, page.results[0]["name"]) == (3, "tower")


def test_refusals_are_exceptions_that_name_field_and_remedy(
    client: Client, cluster: Cluster, tiny_problem: dict[str, Any]
) -> None:
    with pytest.raises(NotFound):
        client.nodes.get(999_999)
    with pytest.raises(Malformed) as refused:
        client.nodes.create({"cluster": cluster.pk, "name": "source"})
    assert refused.value.status == 400
    assert refused.value.errors[0].field == "name"
    with pytest.raises(Conflict, match="exists already"):
        client.clusters.do("import", body={"problem": tiny_problem})


def test_a_name_in_a_path_cannot_leave_its_segment(client: Client, cluster: Cluster) -> None:
    with pytest.raises(NotFound):
        client.requests.get("../nodes")
    assert Link.unscoped.exists()


def test_what_breaks_off_is_asked_again_only_where_that_does_nothing_twice() -> None:
    asked: list[str | None] = []

    def break_off(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers.get("Idempotency-Key"))
        if len(asked) < 3:
            raise httpx.ReadError("broken off")
        return httpx.Response(201, json={"id": 1})

    with Client(URL, transport=httpx.MockTransport(break_off)) as client:
        with pytest.raises(Unreachable, match="broken off"):
            client.plan_runs.create({"cluster": 1, "model": 1})
        assert asked == [None]
        assert client.plan_runs.create({"cluster": 1, "model": 1}, idempotency_key="k")["id"] == 1
        assert asked == [None, "k", "k"]
        asked.clear()
        assert client.call("GET", "/clusters/1/") == {"id": 1}
        assert len(asked) == 3


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        (httpx.Response(200, text="<html>hello"), NotTheApi, "<html>hello"),
        (httpx.Response(302, headers={"Location": "https://x/"}), NotTheApi, "https://x/"),
        (httpx.Response(502, text="bad gateway"), ServerFailed, "bad gateway"),
        (httpx.Response(500, json=["no", "document"]), ServerFailed, "no"),
        (httpx.Response(429, json={"detail": "wait"}, headers={"Retry-After": "7"}),
         TooManyRequests, "wait"),
        (httpx.Response(418, json={"title": "teapot"}), Problem, "teapot"),
    ],
)  # fmt: skip
def test_others_answers_are_named(answer: httpx.Response, kind: type[Exception], said: str) -> None:
    with answering(answer) as client, pytest.raises(kind, match=said) as refused:
        client.nodes.page()
    if isinstance(refused.value, TooManyRequests):
        assert refused.value.retry_after_s == 7


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://x",
        "http://",
        "x:8000",
        "http://u:p@x",
        "http://x/?a=1",
        "http://[::1",
        "http://a..b",
        f"http://{70 * 'a'}.de",
        "http://a\x01b",
    ],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(BadAddress, match="give one like"):
        Client(url)


@pytest.mark.parametrize("key", ["hlx_a b", "hlx_é", "hlx_a\n"])
def test_a_key_that_no_header_can_carry_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(BadAddress, match="copy it again") as refused:
        Client(URL, key=key)
    assert key not in str(refused.value)


def test_the_address_may_end_with_that_of_the_api() -> None:
    with Client(f"{URL}/api/v1/") as client:
        assert client.url == URL


def test_events_are_read_with_their_ids() -> None:
    text = 'retry: 2000\n\n: still here\n\nid: 7\nevent: node\ndata: {"a":\ndata: 1}\n\ndata: 2\n\n'
    text += 'data: "a\u2028b"\n\n'
    first, second, third = read_events([text.encode()])
    assert (first.id, first.type, first.data) == ("7", "node", {"a": 1})
    assert (second.id, second.type, second.data) == ("7", "message", {"value": 2})
    assert third.data == {"value": "a\u2028b"}, "only LF and CRLF end lines"


def test_a_stream_that_breaks_is_taken_up_where_it_was() -> None:
    asked: list[str | None] = []
    frames = [
        b"id: 1\nevent: a\ndata: {}\n\nid: 2\nevent: a\ndata: {}\n\n",
        b"",
        None,
        b"id: 3\ndata: {}\n\n",
    ]

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers.get("Last-Event-ID"))
        frame = frames[len(asked) - 1]
        if frame is None:
            raise httpx.ReadError("broken")
        return httpx.Response(200, content=frame)

    told: list[str] = []
    with Client(URL, transport=httpx.MockTransport(answer)) as client:
        events = client.follow(["cluster:1"], tell=told.append, pause=lambda seconds: None)
        assert [next(events).id for _ in range(3)] == ["1", "2", "3"]
    assert asked == [None, "2", "2", "2"]
    assert len(told) == 1


def test_a_stream_of_too_many_is_asked_for_again_when_the_site_says() -> None:
    answers = [
        httpx.Response(200, content=b"id: 1\ndata: {}\n\n"),
        httpx.Response(429, headers={"Retry-After": "40"}, json={"detail": "too many"}),
        httpx.Response(200, content=b"id: 2\ndata: {}\n\n"),
    ]
    pauses: list[float] = []
    transport = httpx.MockTransport(lambda request: answers.pop(0))
    with Client(URL, transport=transport) as client:
        events = client.follow(["cluster:1"], pause=pauses.append)
        assert [next(events).id for _ in range(2)] == ["1", "2"]
    assert pauses == [1.0, 40.0]


def test_a_first_try_that_fails_is_told_at_once() -> None:
    refused = httpx.Response(401, json={"detail": "who?"})
    with answering(refused) as client, pytest.raises(NotAuthenticated):
        next(client.follow(["cluster:1"], pause=lambda seconds: None))


def test_the_program_of_the_documentation_runs(
    client: Client, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    (program,) = blocks(DOCS / "python-client.md", "python")
    monkeypatch.setenv("HELIXWEB_KEY", "hlx_")
    monkeypatch.setattr("helixweb.client.Client", lambda url, key: client)
    exec(program.text, {})  # noqa: S102
    assert Node.unscoped.filter(cluster__name="lab", name="gpu-1").exists()
