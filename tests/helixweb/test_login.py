"""People come in by a one-time link or a password."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from helixweb.common import login_links
from helixweb.common.models import LoginLink


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
    refused = second.post(f"/login/link/{token}/")
    assert refused.status_code == 403
    assert b"loginlink" in refused.content
    assert second.get("/clusters/").status_code == 302


def test_an_old_link_is_refused(user: Any) -> None:
    token = login_links.create(user)
    LoginLink.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert Client().post(f"/login/link/{token}/").status_code == 403


def test_the_link_of_somebody_who_left_is_refused(user: Any) -> None:
    token = login_links.create(user)
    user.is_active = False
    user.save()
    assert Client().post(f"/login/link/{token}/").status_code == 403


def test_a_token_is_kept_only_as_its_hash(user: Any) -> None:
    token = login_links.create(user)
    assert token not in LoginLink.objects.get().token_hash


@pytest.mark.parametrize(("password", "status"), [("correct horse", 302), ("wrong", 200)])
def test_a_password_logs_in(user: Any, password: str, status: int) -> None:
    user.set_password("correct horse")
    user.save()
    answer = Client().post("/login/", {"username": "ada", "password": password})
    assert answer.status_code == status


def test_logging_out_ends_the_session(browser: Client) -> None:
    assert browser.post("/logout/").status_code == 302
    assert browser.get("/clusters/").status_code == 302
