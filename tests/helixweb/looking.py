"""What tests look for in answers, in texts and in rows, and who looks."""

import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from typing import Any

from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from helixweb.common.api_keys import create_api_key


def answered(answer: Any, status: int) -> Any:
    """The answer, which has that status."""
    assert answer.status_code == status, getattr(answer, "content", answer)
    return answer


def denied(answer: Any, status: int, *words: str) -> None:
    """The answer has that status and says these words."""
    text = answered(answer, status).content.decode()
    if answer.headers["Content-Type"].endswith("json"):
        text = answer.json()["detail"]
    contains(text, *words)


def shows(answer: Any, *words: str) -> None:
    """The answer has these words, whatever its status."""
    contains(answer.content.decode(), *words)


def contains(text: Any, *words: Any) -> None:
    for word in words:
        assert word in text, f"{word!r} is not in {text!r}"


def tight(html: str) -> str:
    """The markup without the whitespace that depends on how templates are indented."""
    return re.sub(r" ?(<[^<>]*>) ?", r"\1", " ".join(html.split()))


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, {name: value or "" for name, value in attrs}))


def elements(html: str) -> list[tuple[str, dict[str, str]]]:
    """Tag and attributes of each element, in order."""
    reader = _Reader()
    reader.feed(html)
    return reader.found


def fresh(row: Any) -> Any:
    """As the database has it now."""
    row.refresh_from_db()
    return row


def api_of(user: Any) -> APIClient:
    """The person's REST client."""
    client = APIClient()
    client.force_authenticate(user)
    return client


def browser_of(user: Any) -> Client:
    """The person's browser, logged in."""
    client = Client()
    client.force_login(user)
    return client


def program(secret: str, **environ: str) -> APIClient:
    """Sends this API key with each request."""
    client = APIClient(**environ)
    client.credentials(HTTP_AUTHORIZATION=f"Bearer {secret}")
    return client


def program_of(user: Any, *scopes: str, **limits: Any) -> APIClient:
    """The same, with a new key of the person."""
    return program(create_api_key(name="k", user=user, scopes=list(scopes), **limits).secret)


def statements(act: Callable[[], Any]) -> list[str]:
    """What it sends to the database."""
    with CaptureQueriesContext(connection) as captured:
        act()
    return [query["sql"] for query in captured]


def at_once(*works: Callable[[], Any]) -> list[Any]:
    """What they return; each in its own thread, all begin together."""
    start = threading.Barrier(len(works))

    def done(work: Callable[[], Any]) -> Any:
        try:
            start.wait(60)
            return work()
        finally:
            connection.close()

    with ThreadPoolExecutor(len(works)) as threads:
        return list(threads.map(done, works))
