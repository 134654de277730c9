"""People come in by a one-time link, a password, or single sign-on with the roles that their groups
give; administrators let them in, and keep them out again."""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.contrib.sessions.models import Session
from django.test import Client, RequestFactory
from django.utils import timezone

from helixweb.access import guessing
from helixweb.access.models import Grant, Identity
from helixweb.access.pages import GrantForm
from helixweb.common import login_links, tasks
from helixweb.common.api_keys import create_api_key
from helixweb.common.models import Event, LoginLink
from helixweb.inventory.models import Change, Cluster
from tests.answering import answering
from tests.helixweb.looking import answered, api_of, browser_of, contains, denied, program_of
from tests.helixweb.openid_provider import CLIENT, SECRET, Provider
from tests.helixweb.process_doubles import FakeCoordinator

pytestmark = pytest.mark.django_db


def test_looking_at_a_link_does_not_use_it_up(user: Any) -> None:
    token = login_links.create(user)
    client = Client()
    for _ in range(2):
        assert client.get(f"/login/link/{token}/").status_code == 200
    assert client.get("/clusters/").status_code == 302


def test_a_link_logs_in_once(user: Any) -> None:
    token = login_links.create(user)
    first = Client()
    assert first.post(f"/login/link/{token}/").status_code == 302
    assert first.get("/clusters/").status_code == 200
    second = Client()
    refused = answered(second.post(f"/login/link/{token}/"), 403)
    assert b"loginlink" in refused.content
    assert second.get("/clusters/").status_code == 302


@pytest.mark.parametrize("left", [True, False])
def test_an_old_link_and_that_of_a_person_who_left_are_refused(user: Any, left: bool) -> None:
    token = login_links.create(user)
    if left:
        user.is_active = False
        user.save()
    else:
        LoginLink.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert Client().post(f"/login/link/{token}/").status_code == 403


def test_a_token_is_kept_only_as_its_hash(user: Any) -> None:
    token = login_links.create(user)
    assert token not in LoginLink.objects.get().token_hash


def test_logging_out_ends_the_session(browser: Client) -> None:
    assert browser.post("/logout/").status_code == 302
    assert browser.get("/clusters/").status_code == 302


def test_whoever_guesses_passwords_must_wait(user: Any) -> None:
    user.set_password("correct horse")
    user.save()
    for number in range(guessing.FAILURES_OF_ADDRESS):
        log_in("wrong", address="10.0.0.1", forwarded=f"203.0.113.{number}")
    refused = answered(log_in("correct horse", address="10.0.0.1", forwarded="10.9.9.9"), 200)
    contains(refused.content, b"Too many failed attempts; try again in 5 minutes", b'value="ada"')
    assert log_in("correct horse", address="10.0.0.2").status_code == 302


def test_guessing_from_many_addresses_is_slowed_as_well(user: Any) -> None:
    for number in range(guessing.FAILURES_OF_NAME):
        log_in("wrong", address=f"10.0.{number}.1")
    assert b"Too many failed" in log_in("wrong", address="10.1.0.1").content
    token = login_links.create(user)
    assert Client().post(f"/login/link/{token}/").status_code == 302, "links work all the same"


def test_guessing_from_many_addresses_of_one_network_is_guessing_from_one(user: Any) -> None:
    user.set_password("correct horse")
    user.save()
    for number in range(guessing.FAILURES_OF_ADDRESS):
        log_in("wrong", address=f"2001:db8:0:1::{number:x}")
    assert b"Too many failed" in log_in("correct horse", address="2001:db8:0:1:f::1").content
    assert log_in("correct horse", address="2001:db8:0:2::1").status_code == 302
    for number in range(guessing.FAILURES_OF_ADDRESS):
        log_in("wrong", address="10.0.0.1" if number % 2 else "::ffff:10.0.0.1")
    assert b"Too many failed" in log_in("correct horse", address="10.0.0.1").content


def log_in(password: str, *, address: str, forwarded: str = "") -> Any:
    return Client(REMOTE_ADDR=address, headers={"X-Forwarded-For": forwarded}).post(
        "/login/", {"username": "ada", "password": password}
    )


def test_sessions_and_links_that_admit_nobody_are_forgotten(user: Any, browser: Client) -> None:
    login_links.create(user)
    tasks.prune_expired()
    assert (Session.objects.count(), LoginLink.objects.count()) == (1, 1)
    long_ago = timezone.now() - timedelta(days=2)
    Session.objects.update(expire_date=long_ago)
    LoginLink.objects.update(expires_at=long_ago)
    tasks.prune_expired()
    assert (Session.objects.count(), LoginLink.objects.count()) == (0, 0)


@pytest.fixture
def provider(settings: Any) -> Iterator[Provider]:
    with answering(Provider()) as found:
        settings.HELIX_OIDC_ISSUER = found.issuer
        settings.HELIX_OIDC_CLIENT_ID, settings.HELIX_OIDC_CLIENT_SECRET = CLIENT, SECRET
        settings.HELIX_OIDC_ROLES = {"staff": "viewer", "ops": "operator", "boss": "admin"}
        settings.AUTHENTICATION_BACKENDS = [
            "django.contrib.auth.backends.ModelBackend",
            "helixweb.access.sso.Backend",
        ]
        yield found


def come_in(provider: Provider, client: Client | None = None) -> tuple[Client, Any]:
    browser = client or Client()
    sent = answered(browser.get("/login/sso/?next=/nodes/"), 302)
    query = provider.log_in(sent.headers["Location"])
    return browser, browser.get(f"/login/sso/callback/?{query}")


def test_a_member_of_a_group_comes_in_with_its_role(provider: Provider) -> None:
    provider.claims["groups"] = ["staff", "ops", "choir"]
    browser, answer = come_in(provider)
    assert (answer.status_code, answer.headers["Location"]) == (302, "/nodes/")
    assert browser.get("/nodes/").status_code == 200
    grace = get_user_model().objects.get(username="grace")
    assert Grant.objects.get(user=grace).role == "operator"
    assert Identity.objects.get(user=grace).subject == "42"
    assert not grace.has_usable_password()
    assert Change.unscoped.filter(kind="user", name="grace", action="added").exists()


def test_roles_follow_the_groups_at_every_log_in(provider: Provider) -> None:
    provider.claims["groups"] = ["boss"]
    come_in(provider)
    provider.claims["groups"] = ["staff"]
    come_in(provider)
    assert Grant.objects.get().role == "viewer"
    provider.claims["groups"] = []
    browser, _ = come_in(provider)
    assert not Grant.objects.exists()
    assert browser.get("/nodes/").status_code == 403
    assert get_user_model().objects.filter(username="grace").count() == 1


def test_whoever_has_no_group_with_a_role_is_not_let_in(provider: Provider) -> None:
    _, answer = come_in(provider)
    assert answer.headers["Location"] == "/login/?sso=refused"
    assert "you have no role here" in Client().get("/login/?sso=refused").content.decode()
    assert not get_user_model().objects.exists()
    assert Change.unscoped.filter(kind="login", action="refused").exists()


def test_a_local_user_of_the_same_name_is_somebody_else(provider: Provider) -> None:
    local = get_user_model().objects.create_superuser("grace", email="grace@example.org")
    provider.claims |= {"groups": ["staff"], "email": "grace@example.org"}
    browser, _ = come_in(provider)
    assert browser.session["_auth_user_id"] != str(local.pk)
    assert get_user_model().objects.filter(username="grace-2").exists()


@pytest.mark.parametrize(
    "spoilt",
    [{"iss": "http://other"}, {"aud": "another"}, {"nonce": "old"}, {"exp": 1}, {"sub": ""}],
    ids=lambda spoilt: next(iter(spoilt)),
)
def test_a_token_of_another_log_in_is_refused(provider: Provider, spoilt: dict[str, Any]) -> None:
    provider.claims["groups"] = ["boss"]
    provider.spoil = spoilt
    browser, answer = come_in(provider)
    assert answer.headers["Location"] == "/login/?sso=failed"
    assert browser.get("/nodes/").status_code == 302
    assert not get_user_model().objects.exists()


def test_a_provider_that_tells_of_somebody_else_is_refused(provider: Provider) -> None:
    provider.claims["groups"] = ["boss"]
    provider.told = {"sub": "43"}
    come_in(provider)
    assert not get_user_model().objects.exists()


def test_a_state_or_a_code_is_good_once_and_in_its_own_browser(provider: Provider) -> None:
    provider.claims["groups"] = ["staff"]
    browser = Client()
    query = provider.log_in(browser.get("/login/sso/").headers["Location"])
    stolen = Client().get(f"/login/sso/callback/?{query}")
    assert stolen.headers["Location"] == "/login/?sso=refused"
    assert browser.get(f"/login/sso/callback/?{query}").headers["Location"] == "/"
    again = browser.get(f"/login/sso/callback/?{query}")
    assert again.headers["Location"].startswith("/login/?sso=")


def test_passwords_work_while_the_provider_is_away(provider: Provider, settings: Any) -> None:
    user = get_user_model().objects.create_superuser("ada", password="correct horse")
    settings.HELIX_OIDC_ISSUER = "http://127.0.0.1:9"
    answer = Client().get("/login/sso/")
    assert answer.headers["Location"] == "/login/?sso=failed"
    browser = Client()
    sent = {"username": "ada", "password": "correct horse"}
    assert browser.post("/login/", sent).status_code == 302
    assert browser.session["_auth_user_id"] == str(user.pk)


def test_there_is_a_button_only_where_it_is_set_up(provider: Provider, settings: Any) -> None:
    assert "/login/sso/" in Client().get("/login/").content.decode()
    settings.HELIX_OIDC_ISSUER = ""
    assert "/login/sso/" not in Client().get("/login/").content.decode()
    assert Client().get("/login/sso/").status_code == 404


@pytest.fixture
def admin(db: None) -> Any:
    return get_user_model().objects.create_superuser("grace")


@pytest.fixture
def office(admin: Any) -> Client:
    """The administrator's browser."""
    return browser_of(admin)


def test_a_link_made_on_the_page_lets_a_new_user_in_once(office: Client) -> None:
    page = office.post("/settings/users/", {"username": "alan", "role": "viewer"}).content.decode()
    found = re.search(r"/login/link/[^<\s]+", page)
    newcomer = Client()
    assert newcomer.post(found.group()).status_code == 302
    assert newcomer.get("/clusters/").status_code == 200
    assert found.group() not in office.get("/settings/users/").content.decode()


def test_a_name_that_cannot_be_is_refused_with_the_reason(office: Client) -> None:
    denied(office.post("/settings/users/", {"username": "a b"}), 422, "valid username")
    assert not get_user_model().objects.filter(username="a b").exists()


def test_a_deactivated_user_loses_access(office: Client, user: Any, browser: Client) -> None:
    program = program_of(user, "read")
    assert office.post(f"/settings/users/{user.pk}/keep-out").status_code == 302
    assert "ada is logged out" in office.get("/settings/users/").content.decode()
    assert browser.get("/clusters/").status_code == 302
    assert program.get("/api/v1/clusters/").status_code == 401
    office.post(f"/settings/users/{user.pk}/let-in")
    assert program.get("/api/v1/clusters/").status_code == 200


def test_coordinators_hear_of_keys_that_ended(office: Client, user: Any, cluster: Cluster) -> None:
    coordinator = FakeCoordinator(cluster, user)
    create_api_key(name="laptop", user=user, scopes=["serve"])
    before = len(coordinator.desired().keys)
    heard = Event.objects.filter(topic=f"coordinator:{coordinator.row.pk}")
    count = heard.count()
    office.post(f"/settings/users/{user.pk}/keep-out")
    assert heard.count() == count + 1
    assert len(coordinator.desired().keys) == before - 1


def test_nobody_locks_themselves_out(office: Client, admin: Any) -> None:
    office.post(f"/settings/users/{admin.pk}/keep-out")
    assert "cannot deactivate yourself" in office.get("/settings/users/").content.decode()


def test_a_form_that_was_loaded_for_somebody_shows_all_to_others(
    cluster: Cluster, user: Any, django_user_model: Any, rf: RequestFactory
) -> None:
    def shown(asker: Any) -> list[str]:
        asked = rf.get("/")
        asked.user = asker
        field: Any = GrantForm(scope=asked).fields["cluster"]
        return [str(row) for row in field.queryset]

    assert shown(django_user_model.objects.create_user("nobody")) == []
    assert shown(user) == ["tiny"]


def test_the_later_of_two_creations_conflicts(admin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def make_group(name: str) -> Group:
        Group.objects.create(name=name)  # by another request, after the name was found to be free
        return Group.objects.create(name=name)

    monkeypatch.setattr("helixweb.access.roles_of_holders.make_group", make_group)
    api = api_of(admin)
    denied(api.post("/api/v1/groups/", {"name": "ops"}), 409, "at the same moment")
