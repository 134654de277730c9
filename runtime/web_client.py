"""What agents and the coordinator say to helixweb: JSON over HTTP, dialled from here.

Every call has a timeout. Errors are `WebError`: the server could not be reached, or it refused.
"""

import asyncio
import hashlib
import html
import json
import logging
import random
import re
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import aclosing
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import httpx
from pydantic import BaseModel, ValidationError

from runtime.backoff import Backoff
from runtime.protocol.checkpoint_looks import TAKES_LOOKS, LookAnswer
from runtime.protocol.complaints import StartRefused, first_complaint
from runtime.protocol.control import (
    AgentIdentity,
    CoordinatorDesired,
    CoordinatorReport,
    DesiredState,
    Heartbeat,
    HeartbeatReply,
    ObservedState,
    RegisterReply,
    RegisterRequest,
)
from runtime.protocol.logs import HEADER, request_id_or_new
from runtime.protocol.node_log import LogBatch
from runtime.protocol.profiling import ProfilingProgress
from runtime.protocol.proxies import may_use_proxy, proxy_remedy
from runtime.protocol.reach import Reach
from runtime.protocol.server_events import ServerEvent, ServerEventReader
from runtime.protocol.trust import stays_here, trusting, why_untrusted

logger = logging.getLogger(__name__)

MessageT = TypeVar("MessageT", bound=BaseModel)
DesiredT = TypeVar("DesiredT", DesiredState, CoordinatorDesired)

_STREAMS: dict[type[BaseModel], str] = {
    DesiredState: f"/api/v1/agent/stream?{TAKES_LOOKS}",
    CoordinatorDesired: "/api/v1/coordinator/stream",
}
_CALL_TIMEOUT = httpx.Timeout(10.0, connect=5.0)
# The server sends a comment every 15 s; three missed ones mean the connection is dead.
_STREAM_TIMEOUT = httpx.Timeout(10.0, connect=5.0, read=45.0)
_MAX_SHOWN_CHARS = 200
EXTRA = "Extra inputs are not permitted"  # how Pydantic refuses a field that it does not know
_TITLE = re.compile(r"<(title|h1)[^>]*>(.*?)</\1>", re.IGNORECASE | re.DOTALL)


class WebError(Exception):
    """The root of what a call to helixweb raises; the text is one line for people."""


class BadServerAddress(StartRefused):
    """Not the URL of a server."""


class ServerUnreachable(WebError):
    """No answer: connection refused, name unknown, timeout, connection broken."""


class ServerRefused(WebError):
    """An answer that is not the one asked for; RFC 9457's title and detail where it has them."""

    def __init__(
        self,
        *,
        status: int,
        title: str,
        detail: str,
        asks_for_later: bool = False,
        is_problem: bool = True,
        unknown: frozenset[str] = frozenset(),
    ) -> None:
        """`is_problem`: said as helixweb says it, not as a gateway before it might. `unknown`: the
        fields that the site does not know, by their paths, such as `reach.listens`."""
        super().__init__(f"{status} {title}: {detail}" if detail else f"{status} {title}")
        self.status = status
        self.title = title
        self.detail = detail
        self.unknown = unknown
        self._asks_for_later = asks_for_later  # by Retry-After
        self._is_problem = is_problem

    @property
    def is_unknown(self) -> bool:
        """Whether helixweb does not know the credential. A gateway that refuses all says 401,
        too, and nothing of that."""
        return self.status == 401 and self._is_problem

    @property
    def is_final(self) -> bool:
        """The same call would be refused again (4xx, but for timeout and too many requests)."""
        if self._asks_for_later or (self.status == 401 and not self._is_problem):
            return False
        return 400 <= self.status < 500 and self.status not in (408, 425, 429)


def check_server(server: str) -> None:
    """Warns where credentials would travel in clear. Raises BadServerAddress."""
    try:
        parts = urlsplit(server)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port or an IPv6 address that is none
        is_good = False
    if not is_good:
        raise BadServerAddress(
            f"--server {server!r} is no address; give one like https://helix.example.org"
        )
    if parts.scheme == "http" and not stays_here(server):
        logger.warning(
            "%s is plain http: join token and credential travel in clear; use https", server
        )


class WebClient:
    """HTTP client for the site's process API; agents and coordinators own one.

    An async context manager. `credential` may be set once registration gave one.
    """

    def __init__(
        self,
        server: str,
        *,
        credential: str | None = None,
        ca: Path | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """`ca`: certificates to trust beside the system's issuers. Raises BadProxy."""
        self.credential = credential
        self._unknown: frozenset[str] = frozenset()  # fields that a site of before refused
        self._rng = rng or random.Random()  # noqa: S311 - jitter, not a secret
        self._http = httpx.AsyncClient(
            base_url=server.rstrip("/"),
            timeout=_CALL_TIMEOUT,
            trust_env=may_use_proxy(server),
            verify=trusting(ca),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._http.aclose()

    async def register(self, request: RegisterRequest) -> RegisterReply:
        """Join with a token; uses it up. Keeps the credential for later calls. Raises WebError.

        Asked again after its answer was lost, the server gives the answer of the first time.
        """
        token = hashlib.sha256(request.join_token.encode()).hexdigest()
        once = {"Idempotency-Key": f"join-{request.node_uuid}-{token[:16]}"}
        answer = await self._call("POST", "/api/v1/agent/register", request, headers=once)
        reply = _read(RegisterReply, answer)
        self.credential = reply.credential
        return reply

    async def announce(self, identity: AgentIdentity) -> None:
        """Announce, after a restart, what this process is. Raises WebError."""
        await self._call("PUT", "/api/v1/agent/identity", identity)

    async def agent_desired(self) -> DesiredState:
        """What this node is to run. Raises WebError."""
        return _read(DesiredState, await self._call("GET", f"/api/v1/agent/desired?{TAKES_LOOKS}"))

    async def heartbeat(
        self,
        observed: ObservedState,
        *,
        leaving: bool = False,
        profiling: ProfilingProgress | None = None,
        reach: Reach | None = None,
        looked: tuple[LookAnswer, ...] = (),
    ) -> HeartbeatReply:
        """What this node does run; `leaving`: and that it says no more. Raises WebError."""
        body = Heartbeat(
            observed=observed, leaving=leaving, profiling=profiling, reach=reach, looked=looked
        )
        return _read(HeartbeatReply, await self._call("POST", "/api/v1/agent/heartbeat", body))

    async def log(self, batch: LogBatch) -> None:
        """What this node logged lately. Raises WebError."""
        await self._call("POST", "/api/v1/agent/log", batch)

    async def coordinator_desired(self) -> CoordinatorDesired:
        """What the coordinator is to serve. Raises WebError."""
        return _read(CoordinatorDesired, await self._call("GET", "/api/v1/coordinator/desired"))

    async def report(self, report: CoordinatorReport) -> HeartbeatReply:
        """What the coordinator measures. Raises WebError."""
        return _read(HeartbeatReply, await self._call("POST", "/api/v1/coordinator/report", report))

    async def desired_states(self, kind: type[DesiredT]) -> AsyncGenerator[DesiredT]:
        """The desired state now and whenever it changes, forever: it dials again and again.

        Raises ServerRefused only if this process does not belong to the cluster any more.
        """
        async for event in self.follow(_STREAMS[kind]):
            if event.event != "desired":
                continue
            try:
                yield kind.model_validate(json.loads(event.data)["state"])
            except (ValueError, KeyError, TypeError) as error:
                logger.error("ignored a desired state that is not understood: %s", error)

    async def follow(self, path: str) -> AsyncGenerator[ServerEvent]:
        """Server-sent events of `path`, over as many connections as it takes.

        Goes on with Last-Event-ID where the server numbers its events. Raises ServerRefused only
        if the credential is unknown.
        """
        backoff = Backoff(rng=self._rng)
        last_id = ""
        while True:
            try:
                async with aclosing(self._events(path, last_id=last_id)) as events:
                    async for event in events:
                        backoff.reset()
                        last_id = event.id
                        yield event
                reason = "the server closed it"
            except WebError as error:
                if isinstance(error, ServerRefused) and error.is_unknown:
                    raise
                reason = str(error)
            wait_s = backoff.next_s()
            logger.info("stream %s broke (%s); again in %.1f s", path, reason, wait_s)
            await asyncio.sleep(wait_s)

    async def _events(self, path: str, *, last_id: str) -> AsyncGenerator[ServerEvent]:
        headers = {**self._headers(), "Accept": "text/event-stream", "Cache-Control": "no-cache"}
        if last_id:
            headers["Last-Event-ID"] = last_id
        try:
            async with self._http.stream(
                "GET", path, headers=headers, timeout=_STREAM_TIMEOUT
            ) as answer:
                if not answer.is_success:
                    await answer.aread()
                    raise _refusal(answer)
                reader = ServerEventReader(last_id=last_id)
                async for chunk in answer.aiter_bytes():
                    for event in reader.feed(chunk):
                        yield event
        except httpx.HTTPError as error:
            raise _unreachable(self._http.base_url, error) from error

    async def _call(
        self,
        method: str,
        path: str,
        body: BaseModel | None = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        try:
            return await self._call_once(method, path, body, headers=headers)
        except ServerUnreachable:
            self._unknown = frozenset()  # another release may answer next
            raise
        except ServerRefused as error:
            if body is None or error.unknown <= self._unknown:
                raise
            logger.warning(
                "%s is of an earlier release than this process and does not know %s; that is left "
                "out until the site is upgraded",
                self._http.base_url,
                ", ".join(sorted(error.unknown - self._unknown)),
            )
            self._unknown |= error.unknown
        return await self._call(method, path, body, headers=headers)

    async def _call_once(
        self, method: str, path: str, body: BaseModel | None, *, headers: Mapping[str, str] | None
    ) -> httpx.Response:
        content = None if body is None else _without(body, self._unknown)
        headers = {**self._headers(), **(headers or {}), "Content-Type": "application/json"}
        try:
            answer = await self._http.request(method, path, content=content, headers=headers)
        except httpx.HTTPError as error:
            raise _unreachable(self._http.base_url, error) from error
        if not answer.is_success:
            about = {"request_id": headers[HEADER]}
            logger.info("%s %s was answered %d", method, path, answer.status_code, extra=about)
            raise _refusal(answer)
        return answer

    def _headers(self) -> dict[str, str]:
        """With an id by which the site's log tells of this call."""
        headers = {HEADER: request_id_or_new(None)}
        if self.credential is not None:
            headers["Authorization"] = f"Bearer {self.credential}"
        return headers


def _read(kind: type[MessageT], answer: httpx.Response) -> MessageT:
    try:
        return kind.model_validate_json(answer.content)
    except ValidationError as error:
        raise ServerRefused(
            status=answer.status_code,
            title=f"not a {kind.__name__}",
            detail=f"{_complaint(error, answer)}; is {answer.url} helixweb, of the same version?",
        ) from None  # the cause quotes the answer


def _complaint(error: ValidationError, answer: httpx.Response) -> str:
    """What is wrong with the answer; quotes it only if it is no JSON, for it may hold a secret."""
    if error.errors(include_url=False, include_input=False)[0]["type"] == "json_invalid":
        return _shown(answer.text)
    return first_complaint(error)


def _without(body: BaseModel, unknown: Collection[str]) -> str:
    """The body as JSON without the fields at these paths."""
    if not unknown:
        return body.model_dump_json()
    told = body.model_dump(mode="json")
    for path in unknown:
        *parents, last = path.split(".")
        part: Any = told
        for name in parents:
            part = part.get(name) if isinstance(part, dict) else None
        if isinstance(part, dict):
            part.pop(last, None)
    return json.dumps(told)


def _refusal(answer: httpx.Response) -> ServerRefused:
    try:
        problem = answer.json()
    except ValueError:
        problem = None
    is_problem = isinstance(problem, dict) and "title" in problem
    if not isinstance(problem, dict):
        problem = {"detail": _foreign(answer)}
    errors = problem.get("errors", ())
    return ServerRefused(
        unknown=frozenset(
            str(one.get("field"))
            for one in (errors if isinstance(errors, list) else ())
            if isinstance(one, dict) and str(one.get("message")).startswith(EXTRA)
        ),
        status=answer.status_code,
        title=str(problem.get("title") or answer.reason_phrase),
        detail=" ".join(str(problem.get("detail") or "").split()),
        asks_for_later="Retry-After" in answer.headers,
        is_problem=is_problem,
    )


def _foreign(answer: httpx.Response) -> str:
    """What an answer says that is not in the words of the API."""
    if "html" not in answer.headers.get("Content-Type", ""):
        return f"{answer.url} answered {_shown(answer.text)!r}"
    title = _TITLE.search(answer.text)
    named = f" titled {_shown(html.unescape(title[2]))!r}" if title else ""
    return (
        f"{answer.url} answered with a page for browsers{named}, not as helixweb does; is --server "
        "its address, and a host name that it knows (HELIX_URL, HELIX_HOSTS)?"
    )


def _unreachable(server: httpx.URL, error: httpx.HTTPError) -> ServerUnreachable:
    if why := why_untrusted(error):
        return ServerUnreachable(
            f"the certificate of {server} is not trusted: {why}; give its issuer with --ca FILE"
        )
    why = f"{str(error) or type(error).__name__}{proxy_remedy(str(server))}"
    return ServerUnreachable(f"{server} does not answer: {why}")


def _shown(text: str) -> str:
    one_line = " ".join(text.split())
    return one_line if len(one_line) <= _MAX_SHOWN_CHARS else f"{one_line[:_MAX_SHOWN_CHARS]}…"
