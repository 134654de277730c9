"""API keys have limits, a pepper, and never more rights than their owners."""

import sys
import threading
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from helixweb.access.models import Grant
from helixweb.common import key_usage
from helixweb.common.api_keys import create_api_key
from helixweb.common.auth import sha256_hex
from helixweb.common.models import ApiKey, KeyUsage
from helixweb.common.peppers import peppers
from helixweb.inventory.models import Change, Cluster
from runtime.protocol.control import KeySpending
from tests.helixweb.looking import answered, at_once, denied, fresh, program, program_of
from tests.helixweb.process_doubles import FakeCoordinator

KEYS = "/api/v1/api-keys/"


def test_a_key_has_no_more_rights_than_its_owner(user: Any, cluster: Cluster) -> None:
    client = program_of(user, "read", "write")
    new = {"name": "fresh", "cluster": cluster.pk}
    Grant.objects.filter(user=user).update(role="viewer")
    assert client.post("/api/v1/nodes/", new).status_code == 403
    assert client.get("/api/v1/nodes/").json()["count"] == 3
    Grant.objects.filter(user=user).delete()
    assert client.get("/api/v1/nodes/").status_code == 403


def test_a_key_of_one_cluster_sees_that_one_alone(user: Any, cluster: Cluster) -> None:
    other = Cluster.objects.create(name="other")
    client = program_of(user, "read", "write", cluster=other)
    assert [row["name"] for row in client.get("/api/v1/clusters/").json()["results"]] == ["other"]
    assert client.get(f"/api/v1/clusters/{cluster.pk}/").status_code == 404
    assert client.post("/api/v1/clusters/", {"name": "third"}).status_code == 403


def test_a_key_is_for_its_networks_alone(user: Any, settings: Any) -> None:
    secret = create_api_key(name="k", user=user, scopes=["read"], networks=["192.0.2.0/24"]).secret
    assert program(secret, REMOTE_ADDR="192.0.2.7").get("/api/v1/nodes/").status_code == 200
    denied(program(secret, REMOTE_ADDR="192.0.3.7").get("/api/v1/nodes/"), 401, "192.0.2.0/24")
    told = {"REMOTE_ADDR": "192.0.3.7", "HTTP_X_FORWARDED_FOR": "192.0.2.7"}
    assert program(secret, **told).get("/api/v1/nodes/").status_code == 401, "no proxy is trusted"


def test_so_many_requests_a_minute_over_rest(user: Any, time_stands_still: None) -> None:
    client = program_of(user, "read", requests_per_min=2)
    statuses = [client.get("/api/v1/nodes/") for _ in range(3)]
    assert [answer.status_code for answer in statuses] == [200, 200, 429]
    assert 1 <= int(statuses[2].headers["Retry-After"]) <= 60
    ApiKey.objects.update(minute=1)
    assert client.get("/api/v1/nodes/").status_code == 200


@pytest.mark.django_db(transaction=True)
def test_a_new_minute_admits_only_the_rate(user: Any, time_stands_still: None) -> None:
    secret = create_api_key(name="k", user=user, scopes=["read"], requests_per_min=2).secret
    both_have_counted = threading.Barrier(2)

    def ask() -> int:
        """Goes on from its first statement that counts when the other one is there, too."""
        waits = [True]

        def counting(execute: Any, sql: str, *args: Any) -> Any:
            answer = execute(sql, *args)
            if waits and sql.startswith("UPDATE") and "minute_requests" in sql:
                waits.clear()
                both_have_counted.wait(60)
            return answer

        with connection.execute_wrapper(counting):
            return int(program(secret).get("/api/v1/me/").status_code)

    ApiKey.objects.update(minute=1)
    assert at_once(ask, ask) == [200, 200]
    assert program(secret).get("/api/v1/me/").status_code == 429


@pytest.mark.django_db(transaction=True)
def test_each_request_of_a_key_is_counted_once_while_counts_are_written(user: Any) -> None:
    row = create_api_key(name="k", user=user, scopes=["read"])
    now, requests = timezone.now(), 20_000

    def count() -> None:
        for _ in range(requests):
            key_usage.count_unwritten(row.pk)

    def write() -> None:
        for _ in range(50):
            key_usage.write_all(now=now)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads take turns within statements
    try:
        at_once(count, count, count, write, write)
    finally:
        sys.setswitchinterval(interval)
    key_usage.write_all(now=now)
    assert KeyUsage.objects.get().rest_requests == 3 * requests


def test_stolen_hashes_open_nothing_and_peppers_can_be_changed(user: Any, settings: Any) -> None:
    new = create_api_key(name="k", user=user, scopes=["read"])
    before = new.secret_hash
    assert before not in (sha256_hex(new.secret), new.secret)
    settings.HELIX_PEPPERS_BEFORE = [peppers()[0].secret]
    settings.HELIX_PEPPER = "fresh"
    assert program(new.secret).get("/api/v1/nodes/").status_code == 200
    row = ApiKey.objects.get()
    assert (row.secret_hash == before, row.pepper) == (False, peppers()[0].id)
    settings.HELIX_PEPPERS_BEFORE = []
    assert program(new.secret).get("/api/v1/nodes/").status_code == 200
    settings.HELIX_PEPPER = "another"
    assert program(new.secret).get("/api/v1/nodes/").status_code == 401


def test_what_a_key_spent_is_booked_once_also_when_the_coordinator_restarts(
    user: Any, cluster: Cluster, browser: Client, api: APIClient, time_stands_still: None
) -> None:
    coordinator = FakeCoordinator(cluster, user)
    new = create_api_key(
        name="k", user=user, scopes=["serve"], tokens_per_day=10_000, networks=["192.0.2.1"]
    )
    create_api_key(name="e", user=user, scopes=["serve"], cluster=Cluster.objects.create(name="e"))
    for requests, prompt, output in ((2, 100, 10), (2, 100, 10), (3, 150, 20), (1, 7, 3)):
        spent = KeySpending(requests=requests, prompt_tokens=prompt, output_tokens=output)
        coordinator.report(generation=0, keys={new.key: spent, "unknown": spent})
    booked = KeyUsage.objects.get()
    assert (booked.requests, booked.prompt_tokens, booked.output_tokens) == (4, 157, 23)
    (told,) = coordinator.desired().keys
    assert (told.key, told.tokens_per_day, told.tokens_today) == (new.key, 10_000, 180)
    assert told.networks == ("192.0.2.1/32",)
    used = {row["name"]: row["used_today"] for row in api.get(KEYS).json()["results"]}
    assert used["k"]["output_tokens"] == 23
    assert ">180<" in browser.get("/settings/api-keys/").content.decode()
    Grant.objects.filter(user=user).delete()
    assert coordinator.desired().keys == (), "of people with a role there alone"


def test_keys_are_made_listed_and_revoked_over_rest(api: APIClient) -> None:
    asked = {
        "name": "ci",
        "scopes": ["read", "write"],
        "networks": ["2001:db8::/32"],
        "requests_per_min": 10,
        "expires_at": (timezone.now() + timedelta(days=1)).isoformat(),
    }
    made = answered(api.post(KEYS, asked), 201)
    secret = made.json()["secret"]
    assert program(secret, REMOTE_ADDR="2001:db8::5").get("/api/v1/me/").json()["key"]
    assert api.get(KEYS).json()["results"][0]["secret"] is None
    line = Change.unscoped.get(kind="apikey")
    assert (line.action, line.actor) == ("added", "ada")
    assert secret not in str(line.after)
    assert api.delete(f"{KEYS}{made.json()['id']}/").status_code == 204
    assert program(secret, REMOTE_ADDR="2001:db8::5").get("/api/v1/me/").status_code == 401
    refused = Change.unscoped.get(kind="credential")
    assert (refused.action, refused.actor_kind, refused.address) == (
        "refused",
        "nobody",
        "2001:db8::5",
    )
    assert "revoked" in refused.text
    assert secret.partition(".")[2] not in refused.name + refused.text


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"scopes": []}, "scopes"),
        ({"scopes": ["root"]}, "root"),
        ({"networks": ["10.0.0.1/8"]}, "10.0.0.1/8"),
        ({"requests_per_min": 0}, "requests_per_min"),
        ({"expires_at": "2020-01-01T00:00:00Z"}, "past"),
        ({"cluster": 99}, "99"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_an_impossible_key_is_refused(api: APIClient, wrong: dict[str, Any], says: str) -> None:
    denied(api.post(KEYS, {"name": "k", "scopes": ["read"], **wrong}), 400, says)
    assert not ApiKey.objects.exists()


def test_a_key_makes_no_key_that_may_do_more_than_itself(user: Any, cluster: Cluster) -> None:
    client = program_of(user, "read", "write", "admin", cluster=cluster)
    assert client.post(KEYS, {"name": "n", "scopes": ["serve"]}).status_code == 403
    assert client.post(KEYS, {"name": "n", "scopes": ["read"]}).status_code == 403
    narrow = {"name": "n", "scopes": ["read"], "cluster": cluster.pk}
    assert client.post(KEYS, narrow).status_code == 201
    assert program_of(user, "read", "write").post(KEYS, narrow).status_code == 403


@pytest.mark.parametrize(
    ("limits", "wider", "narrower"),
    [
        (
            {"networks": ["192.0.2.0/24", "2001:db8::/32"]},
            [{}, {"networks": ["192.0.2.0/23"]}, {"networks": ["192.0.2.0/25", "198.51.100.1"]}],
            [{"networks": ["192.0.2.128/25", "2001:db8:1::/48"]}],
        ),
        (
            {"expires_at": timezone.now() + timedelta(days=2)},
            [{}, {"expires_at": timezone.now() + timedelta(days=3)}],
            [{"expires_at": timezone.now() + timedelta(days=1)}],
        ),
        ({"requests_per_min": 9}, [{}, {"requests_per_min": 10}, {"requests_per_min": 9}], []),
        ({"tokens_per_min": 9}, [{}, {"tokens_per_min": 9}], []),
        ({"tokens_per_day": 9}, [{}, {"tokens_per_day": 9}], []),
    ],
    ids=["networks", "end", "requests", "tokens a minute", "tokens a day"],
)
def test_a_key_makes_no_key_with_wider_limits_than_its_own(
    user: Any, limits: Any, wider: list[Any], narrower: list[Any]
) -> None:
    scopes = ["read", "write", "admin"]
    new = create_api_key(name="maker", user=user, scopes=scopes, **limits)
    client = program(new.secret, REMOTE_ADDR="192.0.2.7")
    for asked in wider:
        denied(client.post(KEYS, {"name": "more", "scopes": ["read"], **asked}), 403, "This key")
    for asked in narrower:
        made = client.post(KEYS, {"name": "less", "scopes": ["read"], **asked})
        assert made.status_code == 201, (asked, made.content)
    assert ApiKey.objects.count() == 1 + len(narrower)


def test_only_admins_see_keys_of_others(user: Any, api: APIClient, django_user_model: Any) -> None:
    eve = django_user_model.objects.create_user("eve")
    key = create_api_key(name="k", user=eve, scopes=["read"])
    assert api.get(f"{KEYS}{key.pk}/").status_code == 404
    assert api.delete(f"{KEYS}{key.pk}/").status_code == 404
    assert api.get(KEYS).json()["count"] == 0
    Grant.objects.filter(user=user).update(role="admin")
    assert api.get(KEYS).json()["count"] == 1
    assert api.delete(f"{KEYS}{key.pk}/").status_code == 204


def test_the_command_makes_lists_and_revokes_keys(
    cluster: Cluster, settings: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    made = ["ada", "ci", "--scopes", "read", "--cluster", "tiny", "--days", "7"]
    call_command("apikey", *made, "--network", "192.0.2.0/24", "--tokens-per-day", "5")
    secret = capsys.readouterr().out.strip()
    row = ApiKey.objects.get()
    assert (row.cluster, row.tokens_per_day, row.networks) == (cluster, 5, ["192.0.2.0/24"])
    assert Change.unscoped.get(kind="apikey").actor_kind == "command"
    settings.HELIX_PEPPER = "fresh"
    call_command("apikey", "--list")
    assert f"hlx_{row.key}  ada  ci  read  (on an old pepper)" in capsys.readouterr().out
    call_command("apikey", "--revoke", secret)
    assert fresh(row).revoked_at is not None


@pytest.mark.parametrize(
    "words",
    [["ada"], ["eve", "k"], ["ada", "k", "--cluster", "none"], ["ada", "k", "--days", "0"],
     ["ada", "k", "--network", "x"], ["ada", "k", "--scopes", "root"], ["--revoke", "hlx_none"]],
)  # fmt: skip
def test_the_command_refuses_by_name_what_cannot_be(user: Any, words: list[str]) -> None:
    with pytest.raises(CommandError):
        call_command("apikey", *words)
    assert not ApiKey.objects.exists()
