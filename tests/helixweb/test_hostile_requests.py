"""Requests that try to get past the site's borders: hosts, redirects, sessions, bodies, paths."""

import gzip
import logging
import re
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import OperationalError
from django.test import Client
from rest_framework.test import APIClient

from helixweb.common import login_links
from helixweb.common.api_keys import create_api_key
from helixweb.inventory.models import Change, Cluster
from helixweb.planning.models import Plan
from tests.helixweb.looking import answered, denied, program, statements
from tests.helixweb.test_access import EVERY_URL, OPEN

EVIL = "evil.example"
PASSWORD = "correct horse battery staple"


@pytest.fixture
def person(db: None) -> Any:
    return get_user_model().objects.create_superuser("grace", password=PASSWORD)


# -- Who the site believes it is ------------------------------------------------------------------
@pytest.mark.django_db
@pytest.mark.parametrize(
    "headers",
    [{"Host": EVIL}, {"Host": f"127.0.0.1@{EVIL}"}, {"Host": "127.0.0.1:8000 evil"}, {"Host": ""}],
)
def test_a_request_for_another_host_is_refused(headers: dict[str, str]) -> None:
    answer = answered(Client().get("/login/", headers=headers), 400)
    assert EVIL not in answer.content.decode()


def test_no_header_makes_links_lead_elsewhere(browser: Client, person: Any) -> None:
    browser.force_login(person)
    forged = {"X-Forwarded-Host": EVIL, "Forwarded": f"host={EVIL}", "X-Forwarded-Proto": "https"}
    page = browser.post("/settings/users/", {"username": "new"}, headers=forged)
    assert "/login/link/" in page.content.decode()
    assert EVIL not in page.content.decode()
    listed = browser.get("/api/v1/clusters/?limit=1", headers=forged)
    assert EVIL not in listed.content.decode()


# -- Logging in -----------------------------------------------------------------------------------
@pytest.mark.django_db
@pytest.mark.parametrize(
    "target",
    [f"//{EVIL}/", f"https://{EVIL}/", f"/\\{EVIL}", f"///{EVIL}", "javascript:alert(1)",
     f"http:///{EVIL}", f"\thttps://{EVIL}"],
)  # fmt: skip
def test_logging_in_leads_nowhere_else(person: Any, target: str) -> None:
    answer = Client().post(
        "/login/", {"username": "grace", "password": PASSWORD, "next": target}, query_params={
            "next": target
        },
    )  # fmt: skip
    assert (answer.status_code, answer.headers["Location"]) == (302, "/")


def test_whoever_knew_the_session_before_a_login_does_not_know_it_after(person: Any) -> None:
    for way in ("password", "link"):
        client = Client()
        session = client.session
        session["planted"] = True
        session.save()
        client.cookies["sessionid"] = planted = str(session.session_key)
        if way == "password":
            client.post("/login/", {"username": "grace", "password": PASSWORD})
        else:
            client.post(f"/login/link/{login_links.create(person)}/")
        fresh = client.cookies["sessionid"]
        assert fresh.value != planted
        assert (fresh["httponly"], fresh["samesite"]) == (True, "Lax")
        stranger = Client()
        stranger.cookies["sessionid"] = planted
        assert stranger.get("/").status_code == 302, way


# -- Forged by another page -----------------------------------------------------------------------
PAGES = sorted({path for name, path in EVERY_URL if not path.startswith("/api/")})


def test_no_form_is_taken_without_the_token_of_its_page(person: Any) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(person)
    statuses = {path: client.post(path, {"name": "x"}).status_code for path in PAGES}
    taken = {path: status for path, status in statuses.items() if status not in (403, 405)}
    assert taken == {}
    assert sum(status == 403 for status in statuses.values()) > 40


def test_no_write_over_rest_is_taken_from_a_session_without_the_token(person: Any) -> None:
    client = APIClient(enforce_csrf_checks=True)
    client.force_login(person)
    for name, path in EVERY_URL:
        if path.startswith("/api/v1/") and name not in OPEN and "/agent/" not in path:
            for method in ("post", "put", "patch", "delete"):
                answer = getattr(client, method)(path, {}, headers={"Origin": f"https://{EVIL}"})
                assert answer.status_code in (401, 403, 404, 405), (method, path)


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/login/", "/", "/clusters/", "/api/v1/clusters/", "/nowhere/"])
def test_every_answer_forbids_frames_and_names_its_type(browser: Client, path: str) -> None:
    headers = browser.get(path).headers
    assert headers["X-Frame-Options"] == "DENY"
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "same-origin"
    # browsers ignore it over plain HTTP, and log an error; test_check_deploy.py has it over HTTPS
    assert "Cross-Origin-Opener-Policy" not in headers


def test_no_answer_invites_scripts_of_other_sites(browser: Client) -> None:
    for path in ("/api/v1/clusters/", "/events?topics=cluster:1", "/api/schema/", "/healthz"):
        answer = browser.get(path, headers={"Origin": f"https://{EVIL}"})
        assert not [name for name in answer.headers if name.startswith("Access-Control")], path


# -- Bodies ---------------------------------------------------------------------------------------
def test_a_body_that_would_unfold_is_not_unfolded(api: APIClient) -> None:
    bomb = gzip.compress(b" " * 50_000_000 + b"{}")
    answer = api.post(
        "/api/v1/clusters/import/", bomb, content_type="application/json",
        headers={"Content-Encoding": "gzip"},
    )  # fmt: skip
    assert answer.status_code == 400
    assert len(bomb) < 100_000


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"[" * 100_000, 400),
        (b'{"name": "' + b"x" * 10_000_001 + b'"}', 413),
        (b'{"name": ' + b"9" * 50_000 + b"}", 400),
        (b'{"name": NaN}', 400),
        (b'{"name": "\\ud800"}', 400),
        (b'{"replanning": "\\ud800"}', 400),
        (b'{"name": "a", "name": "b"}', 400),
        (b'{"name": "a\\u0000b"}', 400),
        (b"\xff\xfe{}", 400),
    ],
    ids=[
        "deep",
        "large",
        "number",
        "nan",
        "half a character",
        "half of no choice",
        "twice",
        "zero byte",
        "encoding",
    ],
)
def test_a_body_that_is_too_much_is_refused(api: APIClient, body: bytes, status: int) -> None:
    answer = api.post("/api/v1/clusters/", body, content_type="application/json")
    assert answer.status_code == status, answer.content[:200]
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert len(answer.content) < 4_000


def test_a_body_that_is_not_taken_is_refused(api: APIClient, cluster: Cluster, plan: Plan) -> None:
    """Whoever sends {"dry_run": true} does not want it done."""
    node = cluster.nodes.get(name="mini")
    token = api.post("/api/v1/join-tokens/", {"cluster": cluster.pk, "role": "node"}).json()["id"]
    before = Change.unscoped.exclude(action="refused").count()
    for send, address in (
        (api.delete, f"nodes/{node.pk}/"),
        (api.delete, f"join-tokens/{token}/"),
        (api.post, f"plan-runs/{plan.run_id}/cancel/"),
        (api.post, "clusters/demo/"),
        (api.post, "sessions/end-others/"),
    ):
        for body in ({"dry_run": True}, [1]):
            denied(send(f"/api/v1/{address}", body), 400, "takes no body")
    assert Change.unscoped.exclude(action="refused").count() == before
    assert api.post("/api/v1/sessions/end-others/", {}).status_code == 200
    assert api.delete(f"/api/v1/nodes/{node.pk}/").status_code == 204


@pytest.mark.parametrize(
    ("address", "body", "status"),
    [
        ("nodes/batch/", {"delete": [[]] * 20_000}, 400),
        ("nodes/batch/", {"create": [{}] * 20_000}, 400),
        ("nodes/bulk/", {"nodes": ["x"] * 20_000}, 400),
        ("nodes/bulk/", {"nodes": [[]] * 100_002}, 413),
        ("nodes/", {f"key {number}": 1 for number in range(20_000)}, 400),
        ("nodes/", {"k" * 1_000_000: 1}, 400),
    ],
    ids=["lists", "objects", "words", "too many", "keys", "long key"],
)
def test_a_long_list_of_wrong_things_is_answered_with_a_short_one(
    api: APIClient, address: str, body: Any, status: int
) -> None:
    answer = api.post(f"/api/v1/{address}", body)
    assert answer.status_code == status, answer.content[:200]
    assert len(answer.content) < 200_000
    if status == 413:
        assert "100,001 values" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("text/plain", b"name=x"),
        ("text/xml", b"name=x"),
        ("application/x-www-form-urlencoded", b"name=x"),
        ("multipart/form-data", b"x"),
        ("multipart/form-data; boundary=" + "x" * 300, b"x"),
        ("application/x-www-form-urlencoded", b"a=1&" * 20_000),
        ("application/x-www-form-urlencoded", b"a=" + b"x" * 10_000_001),
    ],
    ids=["text", "xml", "form", "no boundary", "long boundary", "many fields", "large"],
)
def test_forms_are_no_bodies_and_refusals_are_logged(
    api: APIClient, kind: str, body: bytes
) -> None:
    answer = answered(api.generic("POST", "/api/v1/clusters/", body, content_type=kind), 415)
    assert answer.json()["detail"].endswith("in request. Send application/json.")
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert "415" in Change.unscoped.latest("pk").text


# -- Paths ----------------------------------------------------------------------------------------
@pytest.mark.django_db
@pytest.mark.parametrize(
    "path",
    [
        "/static/../helixweb/settings.py", "/static/%2e%2e/manage.py", "/static/..%2fmanage.py",
        "/static//etc/passwd", "/static/js/..%5c..%5cmanage.py", "/static/plotly/../../secret_key",
        "/static/%00", "/static/js/",
    ],
)  # fmt: skip
def test_no_path_leads_out_of_the_static_files(path: str) -> None:
    answer = Client().get(path)
    assert answer.status_code in (302, 404), path
    assert b"import" not in answer.content


# -- Secrets --------------------------------------------------------------------------------------
def test_a_key_is_looked_up_by_its_hash(user: Any) -> None:
    """So no comparison takes longer the more of it was right."""
    secret = create_api_key(name="k", user=user, scopes=["read"]).secret
    almost = secret[:-1] + ("y" if secret.endswith("x") else "x")

    def ask() -> None:
        answered(program(secret).get("/api/v1/clusters/"), 200)
        answered(program(almost).get("/api/v1/clusters/"), 401)

    asked = " ".join(statements(ask))
    assert secret not in asked
    assert secret.split(".")[1][:-1] not in asked


# -- Logs -----------------------------------------------------------------------------------------
@pytest.mark.django_db
def test_no_address_writes_a_line_of_its_own_into_the_log(
    api: APIClient, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    forged = "/api/v1/x%0a2026-01-01 00:00:00,000 CRITICAL root: forged%1b[2J/"
    caplog.set_level(logging.DEBUG)
    assert api.get(forged).status_code == 404
    assert Client().get(f"/nowhere{forged}").status_code in (302, 404)

    def away(*args: object, **options: object) -> None:
        raise OperationalError("the database is locked")

    monkeypatch.setattr("helixweb.common.api.UnknownAddressView.get", away)
    assert api.get(forged).status_code == 503
    messages = [record.getMessage() for record in caplog.records]
    assert any("forged" in message for message in messages)
    for message in messages:
        if "forged" in message:
            assert not re.search(r"[\x00-\x1f\x7f]", message.split("Traceback")[0]), message
