"""Lists that are kept are given again as long as nothing was committed, and never after."""

import io
import json
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection, connections, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from helixweb.access.models import Grant
from helixweb.common import key_usage, web_requests
from helixweb.common.actor import acting_for_site
from helixweb.common.api_keys import Limits, create_api_key, revoke
from helixweb.common.models import ApiKey
from helixweb.common.rest import kept
from helixweb.common.rest.handler import Application
from helixweb.common.rest.kept import KeptAnswers, VersionOfSqlite
from helixweb.common.rest.viewsets import ReadViewSet
from helixweb.inventory import services
from helixweb.inventory.models import Cluster, Link, Node
from tests.e2e.site_world import make_world
from tests.helixweb.rest_collections import collections
from tests.helixweb.test_rest_handler import scope_of

pytestmark = pytest.mark.django_db(transaction=True)
LINKS, NODES = "/api/v1/links/", "/api/v1/nodes/"
AWAY = "192.0.2.7"


@pytest.fixture
def site() -> Iterator[Application]:
    site = Application()
    yield site
    site.kept.database.close()
    site._threads.shutdown()
    site._quick_thread.shutdown()


@pytest.fixture
def key(user: Any) -> str:
    return create_api_key(name="reads", user=user, scopes=["read"]).secret


Ask = Callable[..., Any]


@pytest.fixture
def ask(site: Application, key: str, cluster: Cluster) -> Ask:
    """The answer to a GET; the first request of a key writes down that it was used."""

    def asked(path: str = LINKS, *headers: tuple[bytes, bytes], **said: Any) -> Any:
        scope = scope_of(path, said.get("key", key), query=said.get("query", ""))
        scope["headers"] += headers
        scope["client"] = (said.get("address", "127.0.0.1"), 9)
        return site._respond(scope, io.BytesIO())

    assert asked().status_code == 200
    return asked


def elsewhere(work: Callable[[], Any]) -> Any:
    """Done on another connection, as by another process."""

    def done() -> Any:
        try:
            with acting_for_site():
                return work()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(done).result(60)


def is_made(asked: Callable[[], Any], *, status: int = 200) -> bool:
    """Whether keys and rows were looked up for an answer of this status."""
    with CaptureQueriesContext(connection) as queries:
        assert asked().status_code == status
    return any("common_apikey" in query["sql"] for query in queries.captured_queries)


def is_kept(asked: Callable[[], Any], *, status: int = 200) -> bool:
    """Whether the answer was given again. On PostgreSQL a commit in any database of the server
    ends what is kept, and other processes of the test run commit to theirs."""
    tries = 1 if connection.vendor == "sqlite" else 50
    return any(not is_made(asked, status=status) for _ in range(tries))


def answers_counted() -> float:
    return sum(
        sample.value
        for family in web_requests.collect()
        for sample in family.samples
        if sample.name == "helix_web_requests_total" and sample.labels["status"] == "200"
    )


def first(answer: Any) -> Any:
    return json.loads(answer.content)["results"][0]


def test_what_nobody_changed_is_given_again(ask: Ask) -> None:
    made = ask()
    for path in (LINKS, NODES):
        ask(path)
        assert is_kept(lambda path=path: ask(path))
    counted = answers_counted()
    again = ask()
    assert answers_counted() == counted + 1
    assert again.content == made.content
    assert {**again.headers, "X-Request-ID": ""} == {**made.headers, "X-Request-ID": ""}
    assert again["X-Request-ID"] != made["X-Request-ID"]
    brought = ask(LINKS, (b"x-request-id", b"mine-1"))
    assert brought["X-Request-ID"] == "mine-1"
    assert is_kept(lambda: ask(LINKS, (b"x-request-id", b"mine-2")))


def test_who_has_what_is_kept_is_told_so_without_a_query(ask: Ask) -> None:
    whole = ask()
    known = (b"if-none-match", whole["ETag"].encode())
    for sent in (known, (b"if-none-match", b'"old", W/' + known[1])):
        assert is_kept(lambda sent=sent: ask(LINKS, sent), status=304)
        told = ask(LINKS, sent)
        assert (told.status_code, told.content) == (304, b"")
        of_a_body = {"Content-Type", "Content-Length"}
        assert {name for name, _ in told.items()} == {name for name, _ in whole.items()} - of_a_body
    assert ask(LINKS, (b"if-none-match", b'"old"')).content == whole.content


def test_who_asks_for_changes_alone_has_whole_answers_kept_for_others(ask: Ask) -> None:
    known = (b"if-none-match", ask()["ETag"].encode())
    elsewhere(lambda: Link.objects.update(latency_s=0.5))
    changed = ask(LINKS, known)
    assert first(changed)["latency_s"] == 0.5
    elsewhere(lambda: Node.objects.update(region="moon"))  # the list is the same after it
    newest = (b"if-none-match", changed["ETag"].encode())
    assert ask(LINKS, newest).status_code == 304
    assert is_kept(ask)
    assert ask().content == changed.content


def test_every_commit_of_anybody_ends_it(ask: Ask) -> None:
    for number in range(1, 4):
        ask()
        here, there = 1e6 * number, 1e7 * number
        Link.objects.update(bandwidth_bytes_per_s=here)
        assert first(ask())["bandwidth_bytes_per_s"] == here
        ask()
        elsewhere(lambda there=there: Link.objects.update(bandwidth_bytes_per_s=there))
        assert first(ask())["bandwidth_bytes_per_s"] == there


def test_what_is_not_committed_changes_nothing(ask: Ask) -> None:
    before = ask().content
    began, go_on = threading.Event(), threading.Event()

    @acting_for_site()
    def change() -> None:
        with transaction.atomic():
            Link.objects.update(bandwidth_bytes_per_s=5.0)
            began.set()
            assert go_on.wait(30)
        connections.close_all()

    with ThreadPoolExecutor(1) as thread:
        changing = thread.submit(change)
        assert began.wait(30)
        assert ask().content == before == ask().content
        go_on.set()
        changing.result(30)
    assert first(ask())["bandwidth_bytes_per_s"] == 5.0


def test_what_changes_while_an_answer_is_made_keeps_it_from_being_kept(
    site: Application, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = site._made

    def changed_meanwhile(scope: Any, body: Any) -> Any:
        made = make(scope, body)
        elsewhere(lambda: Link.objects.update(bandwidth_bytes_per_s=7.0))
        return made

    with monkeypatch.context() as within:
        within.setattr(site, "_made", changed_meanwhile)
        assert first(ask())["bandwidth_bytes_per_s"] != 7.0
    assert first(ask())["bandwidth_bytes_per_s"] == 7.0


def test_no_row_is_older_than_what_was_committed_before_it_was_asked_for(ask: Ask) -> None:
    committed, times = [0.0], 60

    @acting_for_site()
    def write() -> None:
        for number in range(1, times + 1):
            Link.objects.update(bandwidth_bytes_per_s=float(number))
            committed[0] = float(number)
        connections.close_all()

    Link.objects.update(bandwidth_bytes_per_s=0.5)
    with ThreadPoolExecutor(1) as thread:
        writing = thread.submit(write)
        while not writing.done():
            least = committed[0]
            assert first(ask())["bandwidth_bytes_per_s"] >= least
        writing.result()
    assert first(ask())["bandwidth_bytes_per_s"] == times


def test_after_a_commit_what_many_ask_for_is_made_once(
    site: Application, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask()
    Link.objects.update(bandwidth_bytes_per_s=9.0)
    make, made, looked = site._made, [], []
    version = site.kept.database.read()  # on PostgreSQL other databases have a part in it
    all_looked = threading.Event()

    def make_late(scope: Any, body: Any) -> Any:
        made.append(1)
        assert all_looked.wait(30)
        return make(scope, body)

    def look() -> Any:
        looked.append(1)
        if len(looked) == 4:
            all_looked.set()
        return version

    monkeypatch.setattr(site, "_made", make_late)
    monkeypatch.setattr(site.kept.database, "read", look)
    with ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(elsewhere, ask) for _ in range(4)]
        assert [first(one.result(60))["bandwidth_bytes_per_s"] for one in asked] == [9.0] * 4
    assert len(made) == 1


def test_what_was_not_kept_before_is_made_for_each_at_once(
    site: Application, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, both = site._made, threading.Barrier(2)

    def make_together(scope: Any, body: Any) -> Any:
        both.wait(30)
        return make(scope, body)

    monkeypatch.setattr(site, "_made", make_together)
    with ThreadPoolExecutor(2) as threads:
        path = "/api/v1/events/"
        asked = [threads.submit(elsewhere, lambda: ask(path, query="wait=0")) for _ in range(2)]
        assert len({one.result(60).status_code for one in asked}) == 1


def test_whoever_may_not_look_any_more_does_not_see_what_is_kept(ask: Ask, user: Any) -> None:
    def refused(change: Callable[[], Any]) -> int:
        ask()
        assert is_kept(ask)
        elsewhere(change)
        status: int = ask().status_code
        return status

    assert refused(Grant.objects.filter(user=user).delete) == 403
    Grant.objects.create(user=user, role="viewer")
    assert ask().status_code == 200
    assert refused(lambda: type(user).objects.update(is_active=False)) == 401
    type(user).objects.update(is_active=True)
    assert ask().status_code == 200
    assert refused(lambda: revoke(ApiKey.objects.get())) == 401


def test_each_key_address_and_query_has_its_own(ask: Ask, user: Any, cluster: Cluster) -> None:
    other = services.demo_cluster(user=user)
    key = create_api_key(name="one", user=user, scopes=["read"], cluster=other).secret
    near = Limits(networks=["127.0.0.0/8"])
    here = create_api_key(name="here", user=user, scopes=["read"], limits=near).secret
    for _ in range(3):
        assert first(ask(NODES, key=key))["cluster"] == other.pk
        assert first(ask(NODES))["cluster"] == cluster.pk
        assert ask(key=here).status_code == 200
        assert ask(key=here, address=AWAY).status_code == 401
        for limit in (1, 2):
            answer = ask(NODES, query=f"limit={limit}")
            assert len(json.loads(answer.content)["results"]) == limit
        assert ask(query="limit=x").status_code == 400


def test_what_is_asked_anew_or_counted_is_made_each_time(
    ask: Ask, user: Any, time_stands_still: None
) -> None:
    limits = Limits(requests_per_min=4)
    counted = create_api_key(name="counted", user=user, scopes=["read"], limits=limits).secret
    assert [ask(key=counted).status_code for _ in range(6)].count(429) >= 1
    for header in ((b"cache-control", b"no-cache"), (b"cookie", b"zone=Asia/Tokyo")):
        for _ in range(3):
            assert is_made(lambda header=header: ask(LINKS, header))


def test_a_key_that_has_expired_since_is_refused(
    ask: Ask, user: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = timezone.now() + timedelta(seconds=30)
    key = create_api_key(name="ends", user=user, scopes=["read"], limits=Limits(expires_at=ends))
    for _ in range(3):
        assert ask(key=key.secret).status_code == 200
    monkeypatch.setattr(timezone, "now", lambda: ends)
    assert ask(key=key.secret).status_code == 401


def test_that_a_key_is_used_is_counted_and_written_down_every_minute(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(4):
        ask()
    row = ApiKey.objects.get()
    assert key_usage._unwritten[row.pk] == 4
    later = timezone.now() + key_usage.WRITTEN_EVERY + timedelta(seconds=1)
    monkeypatch.setattr(timezone, "now", lambda: later)
    ask()
    row.refresh_from_db()
    assert row.last_used_at == later
    assert row.usage.get(day=later.date()).rest_requests >= 5


def test_a_node_that_falls_silent_is_shown_as_lost(
    ask: Ask, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.HELIX_NODE_LOST_AFTER_S = 5.0
    now = timezone.now()
    Node.objects.update(joined_at=now, last_seen_at=now)
    for query in ("", "fields=state", "fields=state,last_seen_at"):
        monkeypatch.setattr(timezone, "now", lambda: now)
        states = [first(ask(NODES, query=query))["state"] for _ in range(3)]
        later = now + timedelta(seconds=5.1)
        monkeypatch.setattr(timezone, "now", lambda later=later: later)
        assert (states, first(ask(NODES, query=query))["state"]) == (["online"] * 3, "lost")


def test_lists_that_are_kept_for_good_do_not_know_the_time(
    site: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = make_world("lists", chat_url="http://127.0.0.1:9")
    lists = {path: view for path, view in collections().items() if view.shows_rows_alone}
    assert len(lists) >= 8
    assert all(view.same_until is ReadViewSet.same_until for view in lists.values())
    user = get_user_model().objects.get(username=ids["user"])
    key = create_api_key(name="reads", user=user, scopes=["read", "admin"]).secret
    now = timezone.now()

    def shown(days: int) -> dict[str, bytes]:
        monkeypatch.setattr(timezone, "now", lambda: now + timedelta(days=days))
        header = (b"cache-control", b"no-cache")
        found = {}
        for address in lists:
            scope = scope_of(address, key, query="limit=1000")
            scope["headers"].append(header)
            answer = site._respond(scope, io.BytesIO())
            assert answer.status_code == 200, (address, answer.content)
            found[address] = answer.content
        return found

    soon, late = shown(0), shown(400)
    different = [address for address in lists if soon[address] != late[address]]
    assert different == []


def test_a_database_in_the_place_of_another_is_another_version(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, version = tmp_path / "site.sqlite3", VersionOfSqlite()
    monkeypatch.setitem(connection.settings_dict, "NAME", str(path))
    assert version.read() is None  # and no file is made
    assert not path.exists()
    shutil.copy(make_database(tmp_path / "one"), path)
    before = version.read()
    assert before == version.read() is not None
    os.replace(make_database(tmp_path / "two"), path)
    assert version.read() not in (None, before)
    version.close()


def make_database(path: Any) -> Any:
    made = sqlite3.connect(path)
    made.execute("CREATE TABLE t (a)")
    made.close()
    return path


def test_what_is_kept_has_its_bounds(monkeypatch: pytest.MonkeyPatch, ask: Ask, site: Any) -> None:
    size = len(ask().content)
    monkeypatch.setattr(kept, "MOST_BYTES", 3 * size)
    for number in range(20):
        ask(LINKS, (b"x-number", str(number).encode()))
    answers: KeptAnswers = site.kept
    assert 0 < sum(len(one.content) for one in answers._answers.values()) <= 3 * size
    monkeypatch.setattr(kept, "MOST_BYTES", size - 1)
    site.kept = KeptAnswers(site.kept.database)
    for _ in range(2):
        assert is_made(ask)
