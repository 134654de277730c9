"""Machines join with a token and keep their identity ever after."""

import uuid
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from helixweb.inventory.models import Change, Cluster, Coordinator, JoinToken, Node, NodeState
from helixweb.inventory.services import errors, joining, presence, records
from runtime.protocol.control import Hardware, RegisterRequest, Role
from tests.helixweb.looking import answered, at_once, contains

HARDWARE = Hardware(hostname="h", cpu_count=4, memory_bytes=8_000, memory_budget_bytes=4_000)


def token_for(cluster: Cluster, user: Any, role: str = "node") -> str:
    return joining.create_join_token(cluster, role, user).secret


def asking(token: str, **changes: Any) -> RegisterRequest:
    fields: dict[str, Any] = {
        "join_token": token,
        "role": Role.NODE,
        "node_uuid": str(uuid.uuid4()),
        "name": "tower",
        "hardware": HARDWARE,
    }
    fields |= changes
    place = {
        "data_endpoint": f"tcp://10.0.0.7:{5000 + sum(fields['name'].encode())}",
        "data_public_key": str(sum(fields["name"].encode())).rjust(40, "k"),
    }
    return RegisterRequest(**place | fields)


def place(number: int) -> dict[str, Any]:
    """Where the machine of that number receives, whatever it is called."""
    return {
        "data_endpoint": f"tcp://10.0.0.9:{6000 + number}",
        "data_public_key": str(number).rjust(40, "k"),
    }


def join(token: str, **changes: Any) -> joining.Registration:
    return joining.register(asking(token, **changes), timezone.now(), from_this_machine=True)


@pytest.mark.parametrize("may_rename", [False, True])
def test_a_declared_node_is_adopted_as_it_is(cluster: Cluster, user: Any, may_rename: bool) -> None:
    joined = join(token_for(cluster, user), region="elsewhere", may_rename=may_rename)
    node = Node.unscoped.get(name="tower")
    assert joined.row == node
    assert (node.region, node.profile_name, node.state) == ("home", "big", NodeState.ONLINE)
    assert cluster.nodes.count() == 3
    assert (joined.reply.name, joined.reply.cluster) == ("tower", "tiny")


def test_a_new_name_makes_a_new_node_in_the_region_it_says(cluster: Cluster, user: Any) -> None:
    join(token_for(cluster, user), name="attic", region="away")
    node = Node.unscoped.get(name="attic")
    assert (node.region, node.profile_name) == ("away", "")
    assert node.hardware["memory_budget_bytes"] == 4_000


def test_a_used_token_names_its_user_and_the_remedy(cluster: Cluster, user: Any) -> None:
    token = token_for(cluster, user)
    join(token)
    with pytest.raises(joining.TokenUsed, match=r"used already, by 'tower'.*fresh join command"):
        join(token, name="laptop")
    assert Node.unscoped.filter(uuid__isnull=False).count() == 1


def test_one_command_admits_as_many_machines_as_it_says(cluster: Cluster, user: Any) -> None:
    token = joining.create_join_token(cluster, "node", user, machines=3)
    named = [
        join(token.secret, name="rack", may_rename=True, **place(number)).row.name
        for number in range(3)
    ]
    assert named == ["rack", "rack-2", "rack-3"]
    with pytest.raises(joining.TokenUsed, match=r"'rack', 'rack-2', 'rack-3'.*3 machines"):
        join(token.secret, name="rack", may_rename=True)
    lines = Change.unscoped.filter(kind="jointoken", action="noted").order_by("pk")
    assert [line.text for line in lines] == [
        "admitted rack: 1 of 3 machines",
        "admitted rack-2: 2 of 3 machines",
        "admitted rack-3: 3 of 3 machines",
    ]


def test_a_long_name_that_is_taken_gets_a_number_that_fits(cluster: Cluster, user: Any) -> None:
    token = joining.create_join_token(cluster, "node", user, machines=2).secret
    join(token, name="h" * 64)
    second = join(token, name="h" * 64, may_rename=True, **place(1))
    assert second.row.name == "h" * 62 + "-2"


def test_a_host_with_a_number_keeps_it_when_it_joins_again(cluster: Cluster, user: Any) -> None:
    join(token_for(cluster, user))
    identity = str(uuid.uuid4())
    for _ in range(2):
        again = join(token_for(cluster, user), node_uuid=identity, may_rename=True, **place(1))
        assert again.row.name == "tower-2"


def test_the_gpus_of_a_machine_use_a_token_once_up_to_a_bound(cluster: Cluster, user: Any) -> None:
    token = token_for(cluster, user)
    machine = str(uuid.uuid4())

    def of_machine(number: int) -> joining.Registration:
        return join(
            token, machine_uuid=machine, name="box", may_rename=True, **place(number)
        )  # fmt: skip

    for number in range(joining.MAX_NODES_OF_A_MACHINE):
        of_machine(number)
    with pytest.raises(joining.TokenUsed, match=f"{joining.MAX_NODES_OF_A_MACHINE} nodes each"):
        of_machine(99)
    with pytest.raises(joining.TokenUsed):
        join(token, machine_uuid=str(uuid.uuid4()), name="attic")


def test_the_uuid_of_a_node_does_not_open_a_token_that_it_used(cluster: Cluster, user: Any) -> None:
    token = token_for(cluster, user)
    shown = str(join(token).row.uuid)  # by REST, to all who can see the cluster
    for machine in (shown, shown.replace("-", "")):
        with pytest.raises(joining.TokenUsed):
            join(token, machine_uuid=machine, name="attic", **place(1))


def test_tokens_unknown_expired_or_of_another_role_are_refused(cluster: Cluster, user: Any) -> None:
    with pytest.raises(joining.TokenUnknown, match="fresh join command") as refused:
        join("hlxj_" + "s" * 40)
    assert "s" * 20 not in str(refused.value)
    token = token_for(cluster, user, "coordinator")
    with pytest.raises(joining.TokenForAnotherRole, match="coordinator, not a node"):
        join(token)
    join(token, role=Role.COORDINATOR, name="front")
    old = token_for(cluster, user)
    JoinToken.unscoped.update(expires_at=timezone.now() - timedelta(seconds=1))
    with pytest.raises(joining.TokenExpired, match="expired at"):
        join(old)


def test_a_name_in_use_is_refused_and_the_token_stays_good(cluster: Cluster, user: Any) -> None:
    join(token_for(cluster, user))
    token = token_for(cluster, user)
    with pytest.raises(errors.NameTaken, match=r"'tower'.*another --name"):
        join(token)
    assert join(token, name="laptop").row.name == "laptop"


def test_a_machine_that_joins_again_has_a_new_credential(cluster: Cluster, user: Any) -> None:
    identity = str(uuid.uuid4())
    first = join(token_for(cluster, user), node_uuid=identity)
    second = join(
        token_for(cluster, user), node_uuid=identity, data_endpoint="tcp://127.0.0.1:7777"
    )
    assert first.row.pk == second.row.pk
    assert presence.authenticate_agent(first.reply.credential) is None
    assert Node.unscoped.get(pk=first.row.pk).data_endpoint == "tcp://127.0.0.1:7777"
    assert cluster.nodes.count() == 3


def test_a_machine_keeps_its_name_and_cluster(cluster: Cluster, user: Any) -> None:
    identity = str(uuid.uuid4())
    join(token_for(cluster, user), node_uuid=identity)
    with pytest.raises(errors.NameTaken, match="'tower' of cluster 'tiny' already"):
        join(token_for(cluster, user), node_uuid=identity, name="laptop")
    other = records.create(Cluster, name="other")
    with pytest.raises(errors.NameTaken, match="another --data-dir"):
        join(token_for(other, user), node_uuid=identity)


def test_a_coordinator_may_come_back_but_none_of_its_name(cluster: Cluster, user: Any) -> None:
    identity = str(uuid.uuid4())
    front = {"role": Role.COORDINATOR, "name": "front"}
    first = join(token_for(cluster, user, "coordinator"), node_uuid=identity, **front)
    again = join(
        token_for(cluster, user, "coordinator"), node_uuid=identity, http_url="http://f:1", **front
    )
    assert first.row.pk == again.row.pk
    assert Coordinator.unscoped.get().http_url == "http://f:1"
    with pytest.raises(errors.NameTaken, match="'front' already; join with another --name"):
        join(token_for(cluster, user, "coordinator"), **front)


def test_each_coordinator_is_known_to_stages_by_its_own_name(cluster: Cluster, user: Any) -> None:
    def known(name: str) -> str:
        row = join(token_for(cluster, user, "coordinator"), role=Role.COORDINATOR, name=name).row
        assert isinstance(row, Coordinator)
        return row.peer

    assert known("front") == "coordinator"
    assert [known("back"), known("side")] == ["coordinator:2", "coordinator:3"]
    Coordinator.unscoped.get(name="back").delete()
    assert known("new") == "coordinator:2"
    assert Coordinator.unscoped.get(name="side").peer == "coordinator:3"
    with pytest.raises(errors.JoinRefused, match="'coordinator:4' is reserved"):
        join(token_for(cluster, user), name="coordinator:4")


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"name": "coordinator"}, "name"),
        ({"node_uuid": "z" * 36}, "node_uuid"),
        ({"name": "at\u0000tic"}, "name"),
        ({"name": "attic", "region": " home"}, "region"),
        ({"role": Role.COORDINATOR, "name": "fr\nont"}, "name"),
    ],
)
def test_what_no_row_can_hold_is_refused_by_name(
    cluster: Cluster, user: Any, said: dict[str, str], field: str
) -> None:
    token = token_for(cluster, user, said.get("role", Role.NODE))
    with pytest.raises(errors.JoinRefused, match=f"(^|: ){field}:? '"):
        join(token, **said)
    assert JoinToken.unscoped.get().used_at is None


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("machines", [1, 2])
def test_a_race_for_a_token_admits_no_more(cluster: Cluster, user: Any, machines: int) -> None:
    token = joining.create_join_token(cluster, "node", user, machines=machines).secret

    def race(number: int) -> str:
        try:
            join(token, name="node", may_rename=True, **place(number))
        except joining.TokenUsed:
            return "used"
        return "joined"

    outcomes = at_once(*(partial(race, number) for number in range(6)))
    assert sorted(outcomes) == ["joined"] * machines + ["used"] * (6 - machines)
    made = cluster.nodes.filter(uuid__isnull=False).values_list("name", flat=True)
    assert sorted(made) == ["node", "node-2"][:machines]


def test_rest_shows_the_secret_once_with_its_command(api: APIClient, cluster: Cluster) -> None:
    made = api.post("/api/v1/join-tokens/", {"cluster": cluster.pk, "role": "node", "machines": 2})
    assert made.status_code == 201
    secret = made.json()["secret"]
    assert secret.startswith("hlxj_")
    line = f"curl -fsSL http://127.0.0.1:8000/join.sh | sh -s -- --token {secret}"
    assert made.json()["command"] == line
    again = api.get(f"/api/v1/join-tokens/{made.json()['id']}/").json()
    assert (again["secret"], again["command"]) == (None, None)
    assert join(secret).row.name == "tower"
    now = api.get(f"/api/v1/join-tokens/{made.json()['id']}/").json()
    assert (now["machines"], now["machines_admitted"], now["used_at"]) == (2, 1, None)
    assert now["names_admitted"] == ["tower"]


def test_the_page_makes_a_command_for_a_named_machine(browser: Client, cluster: Cluster) -> None:
    page = browser.post(
        f"/clusters/{cluster.pk}/join",
        {"role": "node", "name": "my attic", "region": "away", "service": "on"},
    )
    command = page.context["join_command"]
    assert command.endswith(" --name 'my attic' --region away --service")
    assert (
        command.split("--token ")[1].split()[0]
        not in browser.get(f"/clusters/{cluster.pk}/").content.decode()
    )


@pytest.mark.parametrize(
    ("url", "warned"), [("http://127.0.0.1:8000", True), ("https://helix.example", False)]
)
def test_a_command_that_no_other_machine_can_use_says_so(
    cluster: Cluster, browser: Client, settings: Any, url: str, warned: bool
) -> None:
    settings.HELIX_URL = url
    page = browser.post(
        f"/clusters/{cluster.pk}/join", {"role": "node", "name": "tower", "region": "home"}
    ).content.decode()
    assert f"helix-agent join {url} " in page
    assert ("works on this machine only" in page) is warned
    assert ("--memory" in page) is warned


def test_a_command_shows_who_joined_until_it_is_spent(browser: Client, cluster: Cluster) -> None:
    here = f"/clusters/{cluster.pk}/"
    sent = {"role": "node", "machines": "2", "name": "", "region": "away"}
    page = browser.post(f"{here}join", sent)
    assert page.context["join_command"].endswith("--region away")
    kept = {"role": "node", "region": "away", "service": False}
    assert page.context["join_form"].initial == kept
    secret = page.context["join_command"].split("--token ")[1].split()[0]

    def progress() -> Any:
        asked = {"join_token": JoinToken.unscoped.get().pk}
        return browser.get(here, asked, headers={"HX-Request": "true"})

    join(secret, name="rack", may_rename=True)
    told = progress()
    assert "1 of 2 machines joined: rack." in told.content.decode()
    assert "HX-Retarget" not in told.headers
    join(secret, name="attic", may_rename=True)
    told = progress()
    contains(told.content.decode(), "spent", "rack, attic")
    assert told.headers["HX-Retarget"] == "#join-made"
    other = records.create(Cluster, name="other")
    asked = {"join_token": JoinToken.unscoped.get().pk}
    answer = browser.get(f"/clusters/{other.pk}/", asked, headers={"HX-Request": "true"})
    assert answer.status_code == 404


def test_the_page_suggests_the_next_node(browser: Client, cluster: Cluster, user: Any) -> None:
    join(token_for(cluster, user))
    form = browser.get(f"/clusters/{cluster.pk}/").context["join_form"]
    assert form.initial == {"name": "laptop", "region": "home"}


@pytest.mark.parametrize(
    ("sent", "field"),
    [
        ({"role": "node", "name": "sink", "region": "home"}, "name"),
        ({"role": "boss", "name": "x", "region": "home"}, "role"),
        ({"role": "node", "name": "", "region": ""}, "region"),
        ({"role": "node", "name": "x", "region": "home", "machines": "2"}, "name"),
        ({"role": "node", "name": "", "region": "home", "machines": "1001"}, "machines"),
        ({"role": "coordinator", "name": "", "region": "home", "machines": "2"}, "machines"),
    ],
)
def test_a_command_for_nobody_is_not_made(
    browser: Client, cluster: Cluster, sent: dict[str, str], field: str
) -> None:
    page = answered(browser.post(f"/clusters/{cluster.pk}/join", sent), 422)
    assert field in page.context["join_form"].errors
    assert not JoinToken.unscoped.exists()


@pytest.mark.parametrize(
    "url",
    [
        "http://user:pass@host/",
        "http://host/admin?x=",
        "http://host/#",
        "http://host:99999",
        "http://[bad",
        "http://h/$(reboot)",
        "http://a b",
    ],
)
def test_a_coordinator_at_a_bad_address_is_refused(cluster: Cluster, user: Any, url: str) -> None:
    """This site sends chats there, and people paste it into their shells."""
    token = token_for(cluster, user, "coordinator")
    with pytest.raises(errors.JoinRefused, match="no address of a server"):
        join(token, role=Role.COORDINATOR, name="front", http_url=url)
