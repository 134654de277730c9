"""People come in by a one-time link or a password."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

from helixweb.access import guessing
from helixweb.common import login_links, tasks
from helixweb.common.models import LoginLink
from tests.helixweb.looking import answered, contains


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
