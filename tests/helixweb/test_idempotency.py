"""A POST with an Idempotency-Key is done once, whoever repeats it and whatever dies meanwhile."""

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone
from rest_framework.test import APIClient

from helixweb.access.models import Grant
from helixweb.common.rest import idempotency
from helixweb.common.rest.models import KeptAnswer
from helixweb.common.tasks import prune_expired
from helixweb.inventory.models import Cluster, JoinToken, Node
from helixweb.inventory.services import joining, records
from helixweb.planning.models import Plan, PlanRun
from helixweb.planning.services import starting
from tests.helixweb.looking import answered, api_of, denied, program_of
from tests.helixweb.process_doubles import FakeAgent

KEY = {"Idempotency-Key": "6f1c0a52"}
NODES = "/api/v1/nodes/"


@pytest.fixture
def body(cluster: Cluster) -> dict[str, Any]:
    return {"cluster": cluster.pk, "name": "new"}


def made(name: str = "new") -> int:
    return Node.unscoped.filter(name=name).count()


def test_a_repeated_request_is_answered_and_done_once(api: APIClient, body: dict[str, Any]) -> None:
    first, again = (api.post(NODES, body, headers=KEY) for _ in range(2))
    assert (first.status_code, again.status_code) == (201, 201), first.content
    assert again.content == first.content
    assert again["ETag"] == first["ETag"]
    assert "Idempotency-Replayed" not in first
    assert again["Idempotency-Replayed"] == "true"
    assert made() == 1


def test_a_secret_that_is_shown_again_lies_nowhere(api: APIClient, cluster: Cluster) -> None:
    asked = {"cluster": cluster.pk, "role": "node"}
    first, again = (api.post("/api/v1/join-tokens/", asked, headers=KEY) for _ in range(2))
    secret = first.json()["secret"]
    assert again.json()["secret"] == secret
    assert JoinToken.unscoped.count() == 1
    row = KeptAnswer.objects.get()
    assert secret.encode() not in bytes(row.answer)
    assert KEY["Idempotency-Key"] not in f"{row.key_hash}{row.request_hash}"


def test_a_machine_that_lost_the_answer_joins_with_its_token(user: Any, cluster: Cluster) -> None:
    secret = joining.create_join_token(cluster, "node", user).secret
    known = FakeAgent(cluster, "tower", user, port=7001)
    message = known.registration(secret) | {
        "name": "new", "node_uuid": "5d2c1e3e-8f4b-4a39-9a31-0d6a3ad8cd60",
        "data_endpoint": "tcp://10.0.0.9:7000", "data_public_key": "k" * 40,
    }  # fmt: skip
    machine = APIClient()
    first, again = (machine.post("/api/v1/agent/register", message, headers=KEY) for _ in range(2))
    assert first.status_code == 201, first.content
    assert again.json() == first.json()
    refused = machine.post("/api/v1/agent/register", message)
    assert refused.json()["type"].endswith("#token_used")


def test_a_changed_secret_key_is_named(api: APIClient, body: dict[str, Any], settings: Any) -> None:
    assert api.post(NODES, body, headers=KEY).status_code == 201
    settings.SECRET_KEY = "another" * 10
    denied(api.post(NODES, body, headers=KEY), 409, "SECRET_KEY")
    assert made() == 1


def test_an_answer_is_not_repeated_to_a_user_with_other_roles(user: Any, cluster: Cluster) -> None:
    other = records.create(Cluster, name="other")
    Grant.objects.filter(user=user).update(cluster=cluster)
    Grant.objects.create(user=user, cluster=other, role="operator")
    client = program_of(user, "read", "write")
    asked = {"cluster": cluster.pk, "role": "node"}
    first, again = (client.post("/api/v1/join-tokens/", asked, headers=KEY) for _ in range(2))
    assert (first.status_code, again.status_code) == (201, 201), first.content
    Grant.objects.filter(user=user, cluster=cluster).delete()
    refused = answered(client.post("/api/v1/join-tokens/", asked, headers=KEY), 409)
    assert first.json()["secret"] not in refused.content.decode()


def test_the_key_with_another_request_is_refused(api: APIClient, body: dict[str, Any]) -> None:
    assert api.post(NODES, body, headers=KEY).status_code == 201
    other = answered(api.post(NODES, {**body, "name": "newer"}, headers=KEY), 422)
    assert other.json()["type"].endswith("#key_of_another_request")
    answered(api.post("/api/v1/clusters/", body, headers=KEY), 422)
    assert made("newer") == 0


def test_a_refusal_is_not_kept(api: APIClient, body: dict[str, Any]) -> None:
    assert api.post(NODES, {**body, "region": ""}, headers=KEY).status_code == 400
    assert not KeptAnswer.objects.exists()
    assert api.post(NODES, body, headers=KEY).status_code == 201


def test_keys_are_one_s_own(api: APIClient, body: dict[str, Any], django_user_model: Any) -> None:
    assert api.post(NODES, body, headers=KEY).status_code == 201
    other = api_of(django_user_model.objects.create_superuser("eve"))
    answered(other.post(NODES, {**body, "name": "newer"}, headers=KEY), 201)


@pytest.mark.parametrize("key", ["", "two words", "é", "k" * 256])
def test_a_key_is_some_visible_letters(api: APIClient, body: dict[str, Any], key: str) -> None:
    answer = answered(api.post(NODES, body, headers={"Idempotency-Key": key}), 400)
    assert answer.json()["errors"][0]["field"] == "Idempotency-Key"


def test_what_died_halfway_left_nothing_and_is_done_by_the_next(
    api: APIClient, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: Any) -> None:
        assert made() == 1  # the row is there, its answer is not kept yet
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(idempotency, "_keep", die)
        with pytest.raises(SystemExit):
            api.post(NODES, body, headers=KEY)
    assert made() == 0
    assert api.post(NODES, body, headers=KEY).status_code == 201
    assert made() == 1


def test_answers_are_kept_for_a_day(
    api: APIClient, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert api.post(NODES, body, headers=KEY).status_code == 201
    late = timezone.now() + idempotency.KEPT_FOR + timedelta(seconds=1)
    monkeypatch.setattr(timezone, "now", lambda: late)
    again = api.post(NODES, body, headers=KEY)
    assert "must make a unique set" in again.json()["detail"]  # it was done again, or tried
    prune_expired()
    assert not KeptAnswer.objects.exists()


def test_nobody_fills_the_table(
    api: APIClient, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idempotency, "MAX_KEPT", 1)
    assert api.post(NODES, body, headers=KEY).status_code == 201
    refused = api.post(NODES, {**body, "name": "two"}, headers={"Idempotency-Key": "another"})
    assert refused.status_code == 429
    assert int(refused["Retry-After"]) > 0
    assert api.post(NODES, body, headers=KEY).status_code == 201  # what is kept is told still
    assert made("two") == 0


@pytest.mark.django_db(transaction=True)
def test_of_two_at_once_one_does_it_and_the_other_gets_its_answer(
    user: Any, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, at_work, go_on = starting.start_plan_run, threading.Event(), threading.Event()

    def begin(**asked: Any) -> PlanRun:
        at_work.set()
        go_on.wait(30)
        return start(**asked)

    monkeypatch.setattr(starting, "start_plan_run", begin)
    asked = {"cluster": plan.cluster_id, "model": plan.model_id}
    answers = []

    def ask() -> None:
        client = api_of(user)
        try:
            answers.append(client.post("/api/v1/plan-runs/", asked, headers=KEY))
        finally:
            connection.close()

    before = PlanRun.unscoped.count()
    first = threading.Thread(target=ask)
    first.start()
    assert at_work.wait(30)
    second = threading.Thread(target=ask)
    second.start()
    go_on.set()
    for thread in (first, second):
        thread.join(60)
    assert [one.status_code for one in answers] == [202, 202]
    assert answers[0].json() == answers[1].json()
    assert {"Idempotency-Replayed" in one for one in answers} == {True, False}
    assert PlanRun.unscoped.count() == before + 1


def test_an_answer_is_repeated_once_its_cluster_is_gone(api: APIClient, cluster: Cluster) -> None:
    """The change log names the cluster of what was answered, if there is such a one."""
    body = {"cluster": cluster.pk, "role": "node"}
    made = answered(api.post("/api/v1/join-tokens/", body, headers=KEY), 201)
    assert api.delete(f"/api/v1/clusters/{cluster.pk}/").status_code == 204
    again = api.post("/api/v1/join-tokens/", body, headers=KEY)
    assert (again.status_code, again.json()) == (201, made.json())
