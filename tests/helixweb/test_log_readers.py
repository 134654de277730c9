"""The change log shows a line only to those who may read what it is about."""

import csv
import io
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.test import Client
from rest_framework.test import APIClient

from helixweb.access.models import Grant
from helixweb.alerting.models import Channel
from helixweb.common.api_keys import create_api_key
from helixweb.inventory.models import Change, Cluster, Node
from helixweb.inventory.services import records
from tests.helixweb.looking import answered

ADDRESS = "192.0.2.5"
KEY = "5ec4e7a9b1c2"
SECRET = "boss.private@corp.example"


class Reader:
    """A user with a role on the cluster, or on the site if there is none."""

    def __init__(self, name: str, role: str, cluster: Cluster | None) -> None:
        user = get_user_model().objects.create_user(name)
        Grant.objects.create(user=user, role=role, cluster=cluster)
        self.user, self.browser, self.api = user, Client(), APIClient()
        self.browser.force_login(user)
        self.api.force_authenticate(user)

    def lines(self, **query: str) -> list[dict[str, Any]]:
        """By REST; the page and the CSV file have as many, and no address more."""
        answer = self.api.get("/api/v1/changes/", query)
        lines: list[dict[str, Any]] = answer.json()["results"]
        text = b"".join(self.browser.get("/changes/changes.csv", query)).decode()
        rows = list(csv.DictReader(io.StringIO(text)))
        if not query:
            for origin in ("address", "api_key"):
                assert [row[origin] for row in rows] == [line[origin] for line in lines]
            page = self.browser.get("/changes/", query).content.decode()
            assert (ADDRESS in page) == (ADDRESS in text)
            assert (KEY in page) == (KEY in text)
            assert (SECRET in text) == any(SECRET in str(line) for line in lines)
        return lines


@pytest.fixture
def log(cluster: Cluster, user: Any) -> Cluster:
    """A channel, a grant and a key were made, and a node was changed, from one address."""
    records.create(Channel, cluster=cluster, name="on-call", way="email", addresses=[SECRET])
    create_api_key(name="adas", user=user, scopes=["read"])
    client = APIClient(REMOTE_ADDR=ADDRESS)
    client.force_authenticate(user)
    for node in Node.unscoped.filter(name="mini"):
        assert client.patch(f"/api/v1/nodes/{node.pk}/", {"region": "moon"}).status_code == 200
    line = Change.unscoped.filter(kind="node", address=ADDRESS)[0]
    for kind in ("grant", "apikey", "session"):
        Change.objects.create(
            kind=kind, name=f"a {kind}", action="added", cluster=cluster, actor="ada",
            actor_kind="person", address=ADDRESS, at=line.at,
        )  # fmt: skip
    Change.objects.create(
        kind="node", name="mini", action="changed", cluster=cluster, actor="ada",
        actor_kind="key", api_key=KEY, address=ADDRESS, at=line.at,
    )  # fmt: skip
    return cluster


def test_each_role_reads_of_the_kinds_and_the_addresses_that_are_its_own(log: Cluster) -> None:
    kinds, origins = {}, {}
    for role, where in (("viewer", log), ("operator", log), ("admin", log), ("admin", None)):
        lines = Reader(f"{role}-{where}", role, where).lines()
        kinds[role, where] = {line["kind"] for line in lines} - {"request", "cluster"}
        origins[role, where] = {(line["address"], line["api_key"]) for line in lines}
    assert "node" in kinds["viewer", log]
    assert kinds["viewer", log].isdisjoint({"channel", "grant", "apikey", "session"})
    assert kinds["operator", log] & {"channel", "grant", "apikey"} == {"channel"}
    assert {"channel", "grant"} <= kinds["admin", log]
    assert "apikey" not in kinds["admin", log]
    assert {"channel", "grant", "apikey", "session", "node"} <= kinds["admin", None]
    assert origins["viewer", log] == origins["operator", log] == {("", "")}
    assert ADDRESS in {address for address, _ in origins["admin", log]}
    assert (ADDRESS, KEY) in origins["admin", None]


def test_one_reads_the_address_of_what_one_did(log: Cluster) -> None:
    reader = Reader("olga", "operator", log)
    client = APIClient(REMOTE_ADDR="192.0.2.77")
    client.force_authenticate(reader.user)
    node = Node.unscoped.get(name="laptop")
    assert client.patch(f"/api/v1/nodes/{node.pk}/", {"region": "moon"}).status_code == 200
    assert {line["address"] for line in reader.lines()} == {"", "192.0.2.77"}


def test_an_address_finds_no_lines_that_do_not_show_it(log: Cluster) -> None:
    vera, anna = Reader("vera", "viewer", log), Reader("anna", "admin", log)
    for query in ({"address": ADDRESS}, {"api_key": KEY}):
        assert vera.lines(**query) == []
        assert anna.lines(**query)


@pytest.mark.parametrize("way", ["page", "rest"])
def test_an_administrator_of_one_cluster_cannot_try_out_names(log: Cluster, way: str) -> None:
    anna = Reader("anna", "admin", log)
    get_user_model().objects.create_user("both")
    Group.objects.create(name="both")

    def said(name: str) -> str:
        if way == "page":
            asked = {"name": name, "role": "viewer"}
            answer = answered(anna.browser.post(f"/clusters/{log.pk}/access/", asked), 422)
            (error,) = answer.context["form"].errors["name"]
        else:
            asked = {"user": name, "role": "viewer", "cluster": log.pk}
            answer = answered(anna.api.post("/api/v1/grants/", asked), 400)
            error = str(answer.json()["errors"])
        return str(error).replace(name, "NAME")

    names = ["nobody-0", "both"] if way == "page" else ["nobody-0", "nobody-1"]
    assert len({said(name) for name in names}) == 1, "what a name is cannot be told"
    for number in range(3):
        said(f"nobody-x{number}")
    assert "several people" in said("vince")
    get_user_model().objects.create_user("vince")
    assert "several people" in said("vince")
    assert Change.unscoped.filter(kind="grant", action="refused", actor="anna").exists()
