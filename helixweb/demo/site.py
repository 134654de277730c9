"""A client of the site's own REST API, as a script of a user's would be written."""

import time
from collections.abc import Callable
from typing import Any

import httpx

from helixweb.demo.processes import DemoFailed

POLL_S = 0.2


class Site:
    """`/api/v1` with an API key. Refusals become DemoFailed with the problem's detail."""

    def __init__(self, base_url: str, *, api_key: str) -> None:
        self._client = httpx.Client(
            base_url=base_url, headers={"Authorization": f"Bearer {api_key}"}, timeout=60.0
        )

    def knows_key(self) -> bool:
        """False when the key was revoked, or made for another data directory."""
        return self._client.get("/api/v1/clusters/").status_code != httpx.codes.UNAUTHORIZED

    def get(self, path: str, **params: Any) -> Any:
        return self._answer(self._client.get(f"/api/v1/{path}", params=params))

    def results(self, path: str, **params: Any) -> list[dict[str, Any]]:
        """The items of a list (the demo has fewer than a page of anything)."""
        found: list[dict[str, Any]] = self.get(path, **params)["results"]
        return found

    def post(self, path: str, content: dict[str, Any]) -> Any:
        return self._answer(self._client.post(f"/api/v1/{path}", json=content))

    def patch(self, path: str, content: dict[str, Any]) -> Any:
        return self._answer(self._client.patch(f"/api/v1/{path}", json=content))

    def close(self) -> None:
        self._client.close()

    @staticmethod
    def _answer(response: httpx.Response) -> Any:
        if response.is_error:
            try:
                detail = response.json().get("detail", response.text)
            except ValueError:
                detail = response.text
            request = response.request
            raise DemoFailed(
                f"{request.method} {request.url.path} was answered {response.status_code}: {detail}"
            )
        return response.json()


def wait_until(
    what: str, ready: Callable[[], bool], *, timeout_s: float, check_alive: Callable[[], None]
) -> None:
    """Poll `ready`; raises DemoFailed when a child dies meanwhile or the time is over."""
    deadline = time.monotonic() + timeout_s
    while not ready():
        check_alive()
        if time.monotonic() > deadline:
            raise DemoFailed(f"waited {timeout_s:.0f} s in vain until {what}")
        time.sleep(POLL_S)


def answers(url: str) -> bool:
    """The URL answers with a success."""
    try:
        return httpx.get(url, timeout=10.0).is_success
    except httpx.TransportError:
        return False
