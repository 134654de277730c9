"""The site as the client and the command line meet it: HTTP within this process."""

import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import httpx
from django.core.management import call_command
from django.test import Client as Handler

from helixweb.client import Client
from helixweb.command_line.main import main
from helixweb.command_line.surroundings import Surroundings

URL = "http://testserver"


class InProcess(httpx.BaseTransport):
    """Each request runs in the caller's thread, so what a test wrote is there.

    What is for other hosts goes over the network.
    """

    @cached_property
    def _network(self) -> httpx.HTTPTransport:  # reads the certificates of the system
        return httpx.HTTPTransport()

    def close(self) -> None:
        if "_network" in self.__dict__:
            self._network.close()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.host != "testserver":
            return self._network.handle_request(request)
        request.read()
        answer = Handler().generic(
            request.method,
            request.url.raw_path.decode(),
            request.content,
            content_type=request.headers.get("Content-Type", ""),
            headers=dict(request.headers),
        )
        return httpx.Response(
            answer.status_code, headers=list(answer.headers.items()), content=answer.content
        )


def new_key(user: Any, *scopes: str) -> str:
    """A key of `user`, `hlx_…`."""
    out = io.StringIO()
    said = ",".join(scopes or ("read", "write"))
    call_command("apikey", user.get_username(), "script", scopes=said, stdout=out)
    return out.getvalue().split()[-1]


@contextmanager
def client_of(user: Any, *scopes: str) -> Iterator[Client]:
    with Client(URL, key=new_key(user, *scopes), transport=InProcess()) as client:
        yield client


class Shell:
    """Runs commands as a person's shell does; `out` and `err` are what the last one wrote."""

    def __init__(self, key: str, *, home: str, way: httpx.BaseTransport | None = None) -> None:
        self.environ = {"HELIXWEB_URL": URL, "HELIXWEB_KEY": key, "XDG_CONFIG_HOME": home}
        self.out = self.err = ""
        self._way = way or InProcess()
        self.sleep: Callable[[float], None] = _never

    def __call__(self, *words: object, typed: str = "", terminal: bool = False) -> int:
        """The exit code."""
        out, err = (_Terminal() if terminal else io.StringIO()), io.StringIO()
        around = Surroundings(
            out=out,
            err=err,
            input=_Terminal(typed) if terminal else io.StringIO(typed),
            environ=self.environ,
            sleep=self.sleep,
            transport=self._way,
        )
        try:
            return main([str(word) for word in words], surroundings=around)
        finally:
            self.out, self.err = out.getvalue(), err.getvalue()

    def json(self) -> Any:
        """What the last command printed with --json."""
        return json.loads(self.out)


def _never(seconds: float) -> None:
    raise AssertionError(f"a command slept {seconds} s where nothing is to be waited for")


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True
