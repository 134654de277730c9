"""People come in by single sign-on, with the roles that their groups give."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client

from helixweb.access.models import Grant, Identity
from helixweb.inventory.models import Change
from tests.answering import answering
from tests.helixweb.looking import answered
from tests.helixweb.openid_provider import CLIENT, SECRET, Provider

pytestmark = pytest.mark.django_db


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
def test_a_token_that_is_not_for_this_log_in_is_refused(
    provider: Provider, spoilt: dict[str, Any]
) -> None:
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


def test_a_provider_that_is_away_is_told_of_and_passwords_work_on(
    provider: Provider, settings: Any
) -> None:
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
