"""Administrators let people in by one-time links, and keep them out again."""

import re
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.test import Client, RequestFactory

from helixweb.access.pages import GrantForm
from helixweb.common.api_keys import create_api_key
from helixweb.common.models import Event
from helixweb.inventory.models import Cluster
from tests.helixweb.looking import api_of, browser_of, denied, program_of
from tests.helixweb.process_doubles import FakeCoordinator


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


def test_who_is_kept_out_loses_sessions_and_keys_until_let_in(
    office: Client, user: Any, browser: Client
) -> None:
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


def test_of_two_that_make_the_same_at_once_the_later_is_told(
    admin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make_group(name: str) -> Group:
        Group.objects.create(name=name)  # somebody else, after the name was found to be free
        return Group.objects.create(name=name)

    monkeypatch.setattr("helixweb.access.roles_of_holders.make_group", make_group)
    api = api_of(admin)
    denied(api.post("/api/v1/groups/", {"name": "ops"}), 409, "at the same moment")
