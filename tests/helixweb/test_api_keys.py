"""Programs come in with keys that may do only what their scopes say."""

from typing import Any

import pytest
from django.test import Client

from helixweb.common.models import ApiKey
from tests.helixweb.looking import answered, browser_of, contains, program_of, shows


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
