"""Carries a chat from the browser to a coordinator and streams the answer back.

The browser holds a session here, not an API key; the coordinator judges the request, and what it
refuses comes back as it said it. Closing the stream closes the coordinator's and ends the request.
"""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import httpx
from asgiref.sync import sync_to_async
from django.db.models import QuerySet
from django.http import HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.utils import timezone
from django.utils.translation import gettext as _

from helixweb.common.connections import returns_connection
from helixweb.deployment.coordinators import is_online
from helixweb.deployment.models import SERVING, Deployment, Status
from helixweb.deployment.services.desired import service_key
from helixweb.inventory.models import Coordinator
from runtime.protocol import trace_context
from runtime.protocol.logs import HEADER, REQUEST_ID
from runtime.protocol.trust import issuers

# Between two tokens a request may wait in the coordinator's queue; the stream itself has no end.
TIMEOUT = httpx.Timeout(10.0, connect=5.0, read=300.0)
PASSED_HEADERS = ("Retry-After", "X-Request-Id")
EVENT_STREAM = "text/event-stream"
JSON = "application/json"
LONGEST_REFUSAL = 64_000


class ChatRefused(Exception):
    """No coordinator answered; `error` is as OpenAI writes errors, so that the page reads one kind.

    `param` names the part of the request that is wrong.
    """

    def __init__(self, status: int, message: str, *, code: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        type_ = "server_error" if status >= 500 else "invalid_request_error"
        self.error = {"error": {"message": message, "type": type_, "param": param, "code": code}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A deployment, and the coordinator where it is reached."""

    deployment: Deployment
    coordinator: Coordinator

    def __str__(self) -> str:
        said = (
            _("%(model)s on %(cluster)s (emulated)")
            if self.deployment.emulated
            else _("%(model)s on %(cluster)s")
        )
        return said % {"model": self.deployment.model_name, "cluster": self.deployment.cluster}

    @property
    def base_url(self) -> str:
        return f"{self.coordinator.http_url.rstrip('/')}/v1"

    @property
    def key(self) -> str:
        """The site's API key for it."""
        return service_key(self.coordinator)


def endpoints_of(rows: QuerySet[Deployment]) -> list[Endpoint]:
    """Endpoints of serving deployments whose coordinator has reported its URL, newest first; online
    coordinators are preferred."""
    now = timezone.now()
    known = Coordinator.unscoped.exclude(http_url="")
    by_cluster = {
        row.cluster_id: row for row in sorted(known, key=lambda row: is_online(row, now=now))
    }
    return [
        Endpoint(deployment=deployment, coordinator=by_cluster[deployment.cluster_id])
        for deployment in rows.filter(status__in=SERVING).order_by("-pk")
        if deployment.cluster_id in by_cluster
    ]


async def answer_chat(text: bytes, *, scope: Any, traceparent: str | None) -> HttpResponseBase:
    """A coordinator's answer to an OpenAI chat request with `deployment` in place of `model`: a
    stream of events, or its refusal. `traceparent` is passed on. Raises ChatRefused."""
    body = _read(text)
    endpoint = await sync_to_async(_endpoint)(scope, body.pop("deployment"))
    try:
        return await _ask(endpoint, body, traceparent=traceparent)
    except httpx.HTTPError as error:
        raise ChatRefused(
            502,
            _(
                "The coordinator at %(base_url)s does not answer (%(name)s); start it "
                "again, or correct the address it was started with."
            )
            % {"base_url": endpoint.base_url, "name": type(error).__name__},
            code="coordinator_unreachable",
        ) from error


def _read(text: bytes) -> dict[str, Any]:
    """Parse a request; only `deployment` is checked, the rest by the coordinator."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as error:
        message = _("The request is not JSON: %(error)s.") % {"error": error}
        raise ChatRefused(400, message, code="invalid_value") from error
    if not isinstance(body, dict):
        raise ChatRefused(400, _("The request is not a JSON object."), code="invalid_value")
    pk = body.get("deployment")
    if not isinstance(pk, int) or isinstance(pk, bool):
        raise ChatRefused(
            400,
            _("deployment is %(deployment_id)s; give the number of a deployment.")
            % {"deployment_id": json.dumps(pk)[:80]},
            code="invalid_value",
            param="deployment",
        )
    return body


@returns_connection  # an answer is streamed for minutes
def _endpoint(scope: Any, pk: int) -> Endpoint:
    """The deployment's endpoint; of a superseded one that of what serves its model there now, so
    that a page that is open through a change goes on."""
    rows = Deployment.light(scope)
    deployment = rows.filter(pk=pk).first()
    if deployment is not None and deployment.status == Status.SUPERSEDED:
        same = {"cluster": deployment.cluster_id, "model_name": deployment.model_name}
    else:
        same = {"pk": pk}
    for endpoint in endpoints_of(rows.filter(**same)):
        return endpoint
    if deployment is None:
        raise ChatRefused(
            404,
            _("There is no deployment %(deployment_id)s; choose one that is in service.")
            % {"deployment_id": pk},
            code="deployment_not_found",
            param="deployment",
        )
    if deployment.status in SERVING:
        message = _(
            "The coordinator of cluster %(cluster)s has not said where it is "
            "reached; let it join from the cluster's page, or start it with --host "
            "and --port."
        ) % {"cluster": deployment.cluster}
    else:
        message = _(
            "Deployment %(deployment_id)s is %(status)s; choose one in service, or deploy a plan."
        ) % {"deployment_id": pk, "status": deployment.status}
    raise ChatRefused(409, message, code="not_in_service")


async def _ask(
    endpoint: Endpoint, body: dict[str, Any], *, traceparent: str | None
) -> HttpResponseBase:
    """Returns once the coordinator has begun to answer. Raises ChatRefused, httpx.HTTPError."""
    request = {
        **body,
        "model": endpoint.deployment.model_name,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            httpx.AsyncClient(timeout=TIMEOUT, trust_env=False, verify=issuers())
        )
        answer = await stack.enter_async_context(
            client.stream(
                "POST",
                f"{endpoint.base_url}/chat/completions",
                content=json.dumps(request).encode(),
                headers={
                    "Authorization": f"Bearer {endpoint.key}",
                    "Content-Type": JSON,
                    "Accept-Encoding": "identity",
                    HEADER: REQUEST_ID.get(),
                    **({trace_context.HEADER: traceparent} if traceparent else {}),
                },
            )
        )
        headers = {name: answer.headers[name] for name in PASSED_HEADERS if name in answer.headers}
        if answer.status_code == 200 and _is_plain(answer, EVENT_STREAM):
            headers |= {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
            relayed = _relay(answer, stack.pop_all())
            return StreamingHttpResponse(relayed, headers=headers, content_type=EVENT_STREAM)
        refusal = await _refusal(answer)
    if refusal is None:
        raise ChatRefused(
            502,
            _(
                "What answers at %(base_url)s (%(status)s) is no coordinator; correct "
                "the address it was started with."
            )
            % {"base_url": endpoint.base_url, "status": answer.status_code},
            code="no_coordinator",
        )
    return HttpResponse(refusal, status=answer.status_code, headers=headers, content_type=JSON)


def _is_plain(answer: httpx.Response, media_type: str) -> bool:
    """Coordinators compress nothing; what unfolds could become any length."""
    given = str(answer.headers.get("Content-Type", "")).split(";")[0].strip()
    encoding = str(answer.headers.get("Content-Encoding", "identity")).strip().lower()
    return given == media_type and encoding == "identity"


async def _refusal(answer: httpx.Response) -> bytes | None:
    """The OpenAI error object it is; None for anything else, which no page of ours may show."""
    if answer.status_code < 400 or not _is_plain(answer, JSON):
        return None
    content = b""
    async for chunk in answer.aiter_raw():
        content += chunk
        if len(content) > LONGEST_REFUSAL:
            return None
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(document, dict) and "error" in document else None


async def _relay(answer: httpx.Response, closing: AsyncExitStack) -> AsyncIterator[bytes]:
    """The last event of a stream that the coordinator did not end says so."""
    async with closing:
        try:
            async for chunk in answer.aiter_raw():
                yield chunk
        except httpx.HTTPError as error:
            broken_off = ChatRefused(
                502,
                _(
                    "The coordinator broke off in the middle of the answer (%(name)s); look "
                    "at its log, and ask again."
                )
                % {"name": type(error).__name__},
                code="coordinator_lost",
            )
            yield b"data: " + json.dumps(broken_off.error).encode() + b"\n\n"
