"""A client of the site's own REST API, as a script of a user's would be written."""

import time
from collections.abc import Callable
from typing import Any

from helixweb.client import Client, NotAuthenticated
from helixweb.demo.processes import DemoFailed

POLL_S = 0.2


class Site(Client):
    """`/api/v1` with an API key, by paths. All methods raise ClientError."""

    def __init__(self, base_url: str, *, api_key: str) -> None:
        super().__init__(base_url, key=api_key, timeout_s=60.0)

    def knows_key(self) -> bool:
        """False when the key was revoked, or made for another data directory."""
        try:
            self.get("clusters/")
        except NotAuthenticated:
            return False
        return True

    def get(self, path: str, **params: Any) -> Any:
        return self.call("GET", f"/{path}", query=params)

    def results(self, path: str, **params: Any) -> list[dict[str, Any]]:
        """The items of a list (the demo has fewer than a page of anything)."""
        found: list[dict[str, Any]] = self.get(path, **params)["results"]
        return found

    def post(self, path: str, content: dict[str, Any]) -> Any:
        return self.call("POST", f"/{path}", body=content)

    def patch(self, path: str, content: dict[str, Any]) -> Any:
        return self.call("PATCH", f"/{path}", body=content)


def wait_until(
    what: str, ready: Callable[[], bool], *, timeout_s: float, check_alive: Callable[[], None]
) -> None:
    """Poll `ready`; raises DemoFailed when a child dies meanwhile or the time is over."""
    deadline = time.monotonic() + timeout_s
    while not ready():
        check_alive()
        if time.monotonic() > deadline:
            raise DemoFailed(f"within {timeout_s:.0f} s it did not happen that {what}")
        time.sleep(POLL_S)
