"""Whatever is changed, and whatever is refused, has a line in the change log that says by whom."""

from io import StringIO
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.core.management import call_command
from django.test import Client
from rest_framework.test import APIClient

from helixweb.access.models import Grant
from helixweb.common.api_keys import create_api_key
from helixweb.common.models import ApiKey, SessionOfUser
from helixweb.inventory.models import Change, Cluster, LanguageModel, Node
from helixweb.inventory.services import joining, records
from helixweb.operations import first_start
from tests.helixweb.looking import (
    answered,
    api_of,
    browser_of,
    contains,
    denied,
    fresh,
    program,
    program_of,
    shows,
)
from tests.helixweb.process_doubles import FakeAgent

ADDRESS = "192.0.2.5"


def newest(**wanted: Any) -> Change:
    return Change.unscoped.filter(**wanted)[0]


def test_a_line_says_who_with_which_key_from_where_and_why(user: Any, cluster: Cluster) -> None:
    key = create_api_key(name="k", user=user, scopes=["write", "read"])
    client = program(key.secret, REMOTE_ADDR=ADDRESS)
    comment = "moved\x00 the Räck".encode().decode("latin-1")  # as servers read UTF-8
    headers = {"X-Request-ID": "deploy-7", "X-Change-Comment": comment}
    node = Node.unscoped.get(name="mini")
    answer = client.patch(f"/api/v1/nodes/{node.pk}/", {"region": "moon"}, headers=headers)
    assert answer.headers["X-Request-ID"] == "deploy-7"
    line = newest(kind="node")
    assert (line.actor, line.actor_kind, line.api_key) == ("ada", "key", key.key)
    assert (line.address, line.request_id, line.comment) == (ADDRESS, "deploy-7", "moved the Räck")
    assert (line.before, line.after) == ({"region": "away"}, {"region": "moon"})


def test_a_request_id_that_could_do_harm_is_replaced(api: APIClient) -> None:
    refused = api.get("/api/v1/nodes/999/", headers={"X-Request-ID": "a b\r\nSet-Cookie: x"})
    shown = refused.headers["X-Request-ID"]
    assert shown.isalnum()
    assert len(shown) == 32
    assert refused.json()["request_id"] == shown


def test_what_no_service_tells_of_names_its_row_and_its_cluster(
    api: APIClient, browser: Client, plan: Any, django_user_model: Any
) -> None:
    model = LanguageModel.objects.get()
    asked = {"cluster": plan.cluster_id, "model": model.pk, "options": {"time_limit_s": 5}}
    made = answered(api.post("/api/v1/plan-runs/", asked), 202)
    line = newest(kind="request")
    assert (line.row_id, line.cluster_id) == (made.json()["id"], plan.cluster_id)
    browser.post(f"/plans/{made.json()['id']}/cancel")
    line = newest(kind="request")
    assert "plan-run-cancel" in line.name
    assert (line.row_id, line.cluster_id) == (made.json()["id"], plan.cluster_id)
    vera = django_user_model.objects.create_user("vera")
    Grant.objects.create(user=vera, cluster=plan.cluster, role="viewer")
    reader = api_of(vera)
    seen = reader.get("/api/v1/changes/", {"kind": "request"}).json()["results"]
    assert line.pk in [row["id"] for row in seen]


def test_refusals_are_logged_up_to_a_bound(user: Any, browser: Client, cluster: Cluster) -> None:
    Grant.objects.filter(user=user).update(role="viewer")
    browser.post(f"/clusters/{cluster.pk}/edit", {"name": "mine"})
    line = newest(action="refused")
    assert (line.actor, line.name) == ("ada", f"POST cluster-edit {cluster.pk}")
    for number in range(60):
        browser.post(f"/clusters/{cluster.pk}/nodes/{number}/delete")
    assert Change.unscoped.filter(action="refused").count() <= 21
    assert fresh(cluster).name == "tiny"


def test_a_failed_log_in_is_told_without_the_password(db: None) -> None:
    Client(REMOTE_ADDR=ADDRESS).post("/login/", {"username": "eve", "password": "hunter2"})
    line = newest(kind="login")
    assert (line.name, line.action, line.address) == ("eve", "refused", ADDRESS)
    assert "hunter2" not in str(Change.unscoped.values())


def test_what_commands_do_to_users_is_logged(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def told() -> list[tuple[str, str, str, Any]]:
        lines = Change.unscoped.filter(kind="user", actor_kind="command").order_by("pk")
        return [(line.comment, line.name, line.action, line.after) for line in lines]

    call_command("loginlink", "ada", stdout=StringIO())
    everything = {"is_superuser": True}
    first = [
        ("manage.py loginlink", "ada", "added", everything),
        ("manage.py loginlink", "ada", "noted", None),
    ]
    assert told() == first
    call_command("createsuperuser", interactive=False, username="eve", email="e@example.org")
    monkeypatch.setattr("getpass.getpass", lambda prompt="": "correct horse 7")
    call_command("changepassword", "eve", stdout=StringIO())
    assert told()[2:] == [
        ("manage.py createsuperuser", "eve", "added", everything),
        ("manage.py changepassword", "eve", "changed", None),
    ]
    assert "correct horse" not in str(list(Change.unscoped.values()))
    first_start.login_link("")
    assert [line[:3] for line in told()[4:]] == [("helixweb up", "ada", "noted")]


def test_roles_groups_and_users_are_told_with_before_and_after(db: None) -> None:
    grace = get_user_model().objects.create_superuser("grace")
    client = api_of(grace)
    alan = answered(client.post("/api/v1/users/", {"username": "alan", "role": "viewer"}), 201)
    link = alan.json()["login_link"]
    grant = {"user": "alan", "role": "operator"}
    assert client.post("/api/v1/grants/", grant).status_code == 201
    line = newest(kind="grant")
    assert (line.before, line.after) == ({"role": "viewer"}, {"role": "operator"})
    answered(client.post("/api/v1/groups/", {"name": "night", "members": ["alan"]}), 201)
    assert newest(kind="group").after == {"members": ["alan"]}
    assert link.rpartition("/login/link/")[2] not in str(list(Change.unscoped.values()))
    shown = client.get("/api/v1/users/", {"username": "alan"}).json()["results"][0]
    assert (shown["groups"], shown["login_link"]) == (["night"], None)
    assert [row["role"] for row in shown["grants"]] == ["operator"]


def test_a_group_gives_its_role_and_takes_it_back(cluster: Cluster, django_user_model: Any) -> None:
    grace = django_user_model.objects.create_superuser("grace")
    alan = django_user_model.objects.create_user("alan")
    office, member = api_of(grace), api_of(alan)
    group = office.post("/api/v1/groups/", {"name": "night", "members": ["alan"]}).json()
    given = {"group": "night", "cluster": cluster.pk, "role": "viewer"}
    assert office.post("/api/v1/grants/", given).status_code == 201
    assert member.get("/api/v1/nodes/").json()["count"] == 3
    assert member.get("/api/v1/me/").json()["roles"] == [{"cluster": cluster.pk, "role": "viewer"}]
    office.patch(f"/api/v1/groups/{group['id']}/", {"members": []})
    assert member.get("/api/v1/nodes/").status_code == 403


def test_whoever_is_called_as_a_group_gets_not_its_role(cluster: Cluster, db: None) -> None:
    users = get_user_model().objects
    office = browser_of(users.create_superuser("grace"))
    Group.objects.create(name="ops")
    users.create_user("ops")  # as somebody may be called whom single sign-on lets in
    where, given = f"/clusters/{cluster.pk}/access/", {"name": "ops", "role": "admin"}
    denied(office.post(where, given), 422, "is a user and a group")
    assert not Grant.objects.filter(cluster=cluster).exists()
    Group.objects.filter(name="ops").update(name="night")
    assert office.post(where, given).status_code == 302


def test_an_administrator_of_one_cluster_gives_roles_there_and_nowhere_else(
    cluster: Cluster, user: Any, django_user_model: Any
) -> None:
    Grant.objects.filter(user=user).update(role="admin", cluster=cluster)
    django_user_model.objects.create_user("alan")
    other = Cluster.objects.create(name="other")
    client = api_of(user)
    given = {"user": "alan", "role": "viewer"}
    assert client.post("/api/v1/grants/", {**given, "cluster": cluster.pk}).status_code == 201
    assert client.post("/api/v1/grants/", {**given, "cluster": other.pk}).status_code == 400
    assert client.post("/api/v1/grants/", given).status_code == 403
    assert {row["cluster"] for row in client.get("/api/v1/grants/").json()["results"]} == {
        cluster.pk
    }
    browser = browser_of(user)
    shows(browser.get(f"/clusters/{cluster.pk}/access/"), "alan")
    sent = {"name": "alan", "role": "operator"}
    assert browser.post(f"/clusters/{cluster.pk}/access/", sent).status_code == 302
    assert Grant.objects.get(user__username="alan").role == "operator"
    assert browser.get("/settings/users/").status_code == 403


def test_logging_out_everywhere_ends_other_sessions_at_once(user: Any, browser: Client) -> None:
    elsewhere = browser_of(user)
    assert SessionOfUser.objects.filter(user=user).count() == 2
    assert browser.post("/settings/sessions/end").status_code == 302
    assert elsewhere.get("/clusters/").status_code == 302
    assert browser.get("/clusters/").status_code == 200
    assert newest(kind="session").text == "logged out everywhere"


def test_a_session_ends_by_its_age_however_much_it_is_used(browser: Client, settings: Any) -> None:
    assert browser.get("/clusters/").status_code == 200
    settings.HELIX_SESSION_MAX_AGE_S = -1
    assert browser.get("/clusters/").status_code == 302
    settings.HELIX_SESSION_MAX_AGE_S = 1000
    assert browser.get("/clusters/").status_code == 302


def test_a_revoked_machine_must_join_again(cluster: Cluster, user: Any, api: APIClient) -> None:
    agent = FakeAgent(cluster, "tower", user, port=7001)
    assert api.post(f"/api/v1/nodes/{agent.row.pk}/revoke-credential/").status_code == 204
    beat = {"observed": {"generation": 0, "phase": "idle"}}
    assert agent.http.post("/api/v1/agent/heartbeat", beat).status_code == 401
    assert newest(kind="node").text == "credential revoked"
    answered(api.post(f"/api/v1/nodes/{agent.row.pk}/revoke-credential/"), 409)
    agent.join(joining.create_join_token(cluster, "node", user).secret)
    assert agent.http.post("/api/v1/agent/heartbeat", beat).status_code == 200


def test_a_join_token_is_revoked_over_rest(cluster: Cluster, user: Any, api: APIClient) -> None:
    made = api.post("/api/v1/join-tokens/", {"cluster": cluster.pk, "role": "node"}).json()
    assert api.delete(f"/api/v1/join-tokens/{made['id']}/").status_code == 204
    told = [line.action for line in Change.unscoped.filter(kind="jointoken")]
    assert told == ["removed", "added"]
    agent = FakeAgent(cluster, "tower", user, port=7001)
    with pytest.raises(AssertionError, match="expired"):
        agent.join(made["secret"])
    assert made["secret"] not in str(list(Change.unscoped.values()))
    assert api.delete(f"/api/v1/join-tokens/{made['id']}/").status_code == 409


HOSTILE = [
    ("get", "/api/v1/nodes/1%27%20OR%201=1/", {}, None),
    ("get", "/api/v1/nodes/%2e%2e%2f%2e%2e%2fetc%2fpasswd/", {}, None),
    ("get", "/api/v1/nodes/%00/", {}, None),
    ("get", "/api/v1/nodes/?cluster=1;DROP TABLE x", {}, None),
    ("get", "/api/v1/events/?topics=agent:1", {}, None),
    ("post", "/api/v1/nodes/", {}, '{"name": {"$gt": ""}, "cluster": 1}'),
    ("post", "/api/v1/nodes/", {}, '{"name": "a", "cluster": [1, {"id": 2}]}'),
    ("post", "/api/v1/nodes/", {}, "{" * 100_000),
    ("post", "/api/v1/nodes/", {}, '{"__proto__": {"is_superuser": true}}'),
    ("post", "/api/v1/users/", {}, '{"username": "x", "is_superuser": true}'),
    ("patch", "/api/v1/users/1/", {}, '{"is_superuser": true}'),
    ("post", "/api/v1/grants/", {}, '{"user": "ada", "role": "root"}'),
    ("post", "/api/v1/nodes/", {"Content-Type": "application/x-python-pickle"}, "x"),
    ("patch", "/api/v1/nodes/1/", {"If-Match": "x\x7f" * 2000}, "{}"),
    ("post", "/api/v1/plan-runs/", {"Idempotency-Key": "a" * 5000}, "{}"),
    ("get", "/api/v1/nodes/", {"Authorization": "Bearer hlx_' OR ''='.x"}, None),
    ("get", "/api/v1/nodes/", {"Authorization": "Bearer hlx_" + "a" * 9000}, None),
]


@pytest.mark.parametrize(("method", "path", "headers", "body"), HOSTILE)
def test_what_is_hostile_gets_a_clear_4xx_and_changes_nothing(
    user: Any, cluster: Cluster, method: str, path: str, headers: dict[str, str], body: str | None
) -> None:
    key = create_api_key(name="k", user=user, scopes=["read", "write", "admin"])
    before = (Node.unscoped.count(), get_user_model().objects.count(), Grant.objects.count())
    sent = {"Authorization": f"Bearer {key.secret}", **headers}
    kind = sent.pop("Content-Type", "application/json")
    answer = APIClient().generic(method.upper(), path, body or "", content_type=kind, headers=sent)
    assert 400 <= answer.status_code < 500, answer.content
    assert answer.json()["detail"]
    assert (
        Node.unscoped.count(),
        get_user_model().objects.count(),
        Grant.objects.count(),
    ) == before
    assert not get_user_model().objects.filter(is_superuser=True).exists()
    if method != "get" or "Authorization" in headers:
        assert Change.unscoped.filter(action="refused").exists()


def test_a_key_that_has_expired_is_refused_and_logged(user: Any) -> None:
    key = create_api_key(name="k", user=user, scopes=["read", "write"])
    ApiKey.objects.update(expires_at="2020-01-01T00:00:00Z")
    refused = answered(program(key.secret).post("/api/v1/clusters/", {"name": "new"}), 401)
    assert refused["Content-Type"] == "application/problem+json"
    assert refused["WWW-Authenticate"] == "Bearer"
    assert not Cluster.unscoped.exists()
    line = newest(kind="credential")
    assert line.name == f"hlx_{key.key}…"[:17]
    assert key.secret.partition(".")[2] not in line.name + line.text


def test_the_log_is_read_and_exported(browser: Client, api: APIClient, cluster: Cluster) -> None:
    records.update(Node.unscoped.get(name="mini"), region="=1+1")
    records.update(Node.unscoped.get(name="tower"), region="moon")
    node = Node.unscoped.get(name="mini")
    for method in (api.post, api.patch, api.delete):
        assert method(f"/api/v1/changes/{newest(kind='node').pk}/").status_code == 405
    content = b"".join(browser.get(f"/changes/changes.csv?row={node.pk}&kind=node"))
    lines = content.decode().splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("at,actor,actor_kind")
    changed = browser.get("/changes/?action=changed").context["page"]
    assert {(line.name, line.action) for line in changed} == {
        ("mini", "changed"),
        ("tower", "changed"),
    }
    assert "mini" not in browser.get("/changes/?request_id=none").content.decode()


@pytest.mark.parametrize(
    ("scope", "reading", "writing"), [("read", 200, 403), ("write", 403, 201), ("serve", 403, 403)]
)
def test_a_scope_allows_what_it_says(user: Any, scope: str, reading: int, writing: int) -> None:
    client = program_of(user, scope)
    assert client.get("/api/v1/clusters/").status_code == reading
    assert client.post("/api/v1/clusters/", {"name": "new"}).status_code == writing


def test_nobody_revokes_the_key_of_another(user: Any, django_user_model: Any) -> None:
    client = program_of(user, "read")
    stranger = browser_of(django_user_model.objects.create_user("eve"))
    answered(stranger.post(f"/settings/api-keys/{ApiKey.objects.get().pk}/revoke"), 404)
    assert client.get("/api/v1/clusters/").status_code == 200
    for _ in range(2):
        browser_of(user).post(f"/settings/api-keys/{ApiKey.objects.get().pk}/revoke")
    assert Change.unscoped.filter(kind="apikey", text="revoked").count() == 1


def test_a_new_key_is_shown_once_and_kept_as_its_hash(browser: Client) -> None:
    page = browser.post("/settings/api-keys/", {"name": "laptop", "scopes": ["read"]})
    key = ApiKey.objects.get()
    shows(page, f"hlx_{key.key}.")
    assert "no-store" in page.headers["Cache-Control"]
    assert f"hlx_{key.key}." not in browser.get("/settings/api-keys/").content.decode()


def test_a_key_without_a_scope_is_not_made_and_its_name_is_kept(browser: Client) -> None:
    page = answered(browser.post("/settings/api-keys/", {"name": "laptop"}), 422)
    contains(page.content.decode(), "Choose at least one.", 'value="laptop"')
    assert not ApiKey.objects.exists()
