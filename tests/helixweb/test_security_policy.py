"""Which scripts a browser may run is said by every answer, as django-csp makes it."""

from typing import Any

import pytest
from csp.constants import SELF
from csp.utils import build_policy
from django.test import Client
from rest_framework.test import APIClient

pytestmark = pytest.mark.django_db
HEADER = "Content-Security-Policy"


def parts(policy: str) -> set[str]:
    return {part.strip() for part in policy.split(";")}


def test_the_apis_answers_have_the_policy(api: APIClient, browser: Client, settings: Any) -> None:
    for path, status in (("/api/v1/nodes/", 200), ("/api/v1/colours/", 404)):
        for _ in range(2):
            answer = api.get(path)
            assert answer.status_code == status
            assert parts(answer[HEADER]) == parts(build_policy()) >= {"script-src 'self'"}
    nonces = [browser.get("/nodes/")[HEADER] for _ in range(2)]
    assert all("'nonce-" in policy for policy in nonces)
    assert nonces[0] != nonces[1]
    settings.CONTENT_SECURITY_POLICY = {"DIRECTIVES": {"default-src": [SELF]}}
    assert api.get("/api/v1/nodes/")[HEADER] == "default-src 'self'"
