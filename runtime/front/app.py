"""The front's HTTP API: /v1/chat/completions, /v1/completions, /v1/models (all or one), /health,
/metrics.

All but /health need a key; without one it says no more than a load balancer asks: why an instance
is not ready may quote its log.
"""

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from runtime.api.access import ApiKeys, RequireApiKey
from runtime.api.error_answers import EXCEPTION_HANDLERS
from runtime.api.request_body import read_body
from runtime.dialects import DIALECTS
from runtime.dialects.translation import Translated
from runtime.front.answer import Answer, Desk
from runtime.front.asked import Endpoint, read_asked
from runtime.front.metrics import metrics_page
from runtime.front.refusals import stopping
from runtime.instances.instance import Instance
from runtime.protocol.openai import ApiError, model_not_found

MOST_UNDER_WAY = 4096
_RETRY_AFTER_S = 5.0


def create_front(*, desk: Desk, instances: Mapping[str, Instance], keys: ApiKeys) -> Starlette:
    """`instances` by name, as `desk` has their doors."""
    face = _Face(desk, instances, keys)
    return Starlette(
        routes=[
            Route("/v1/chat/completions", face.chat, methods=["POST"]),
            Route("/v1/completions", face.completion, methods=["POST"]),
            Route("/v1/models", face.models, methods=["GET"]),
            Route("/v1/models/{name:path}", face.model, methods=["GET"]),
            Route("/health", face.health, methods=["GET"]),
            Route("/metrics", face.metrics, methods=["GET"]),
        ],
        middleware=[
            Middleware(Translated, dialects=DIALECTS),
            Middleware(RequireApiKey, keys=keys),
        ],
        exception_handlers=EXCEPTION_HANDLERS,
    )


class _Face:
    def __init__(self, desk: Desk, instances: Mapping[str, Instance], keys: ApiKeys) -> None:
        self._desk = desk
        self._instances = instances
        self._keys = keys
        self._numbers = itertools.count(1)

    async def chat(self, http: Request) -> Answer:
        return await self._answer(http, "/v1/chat/completions")

    async def completion(self, http: Request) -> Answer:
        return await self._answer(http, "/v1/completions")

    async def models(self, http: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self._model_entry()]})

    async def model(self, http: Request) -> Response:
        name, served = http.path_params["name"], self._desk.model_name
        if name != served:
            raise model_not_found(name, available=served)
        return JSONResponse(self._model_entry())

    async def health(self, http: Request) -> Response:
        """200 while at least one instance takes requests; with a key the body says how each is."""
        balance = self._desk.balance
        open_ones = balance.open_instances()
        status = "ok" if open_ones else "no instance is ready"
        if balance.is_closed:
            status, open_ones = "stopping", []
        body: dict[str, Any] = {"status": status}
        if self._has_key(http):
            body["requests_under_way"] = balance.under_way
            body["instances"] = {
                name: self._told(name, is_open=name in open_ones) for name in self._instances
            }
        return JSONResponse(body, status_code=200 if open_ones else 503)

    async def metrics(self, http: Request) -> Response:
        page = metrics_page(self._desk.balance, self._instances)
        return Response(page, media_type="text/plain; version=0.0.4")

    def _model_entry(self) -> dict[str, object]:
        name = self._desk.model_name
        return {"id": name, "object": "model", "created": 0, "owned_by": "helixweb", "root": name}

    def _has_key(self, http: Request) -> bool:
        try:
            self._keys.check(http.headers.get("authorization"))
        except ApiError:
            return False
        return True

    def _told(self, name: str, *, is_open: bool) -> dict[str, Any]:
        """How an instance is, for people who may ask it."""
        balance, instance = self._desk.balance, self._instances[name]
        trouble = balance.trouble_of(name)
        return {
            "condition": instance.state.condition,
            "open": is_open,
            "message": instance.state.message or ("" if trouble is None else trouble.reason),
            "requests_under_way": balance.under_way_at(name),
            "requests_answered": balance.answered[name],
            "kv_usage": instance.load.kv_usage,
            "complaint": instance.load.complaint,
        }

    async def _answer(self, http: Request, endpoint: Endpoint) -> Answer:
        asked = read_asked(endpoint, await read_body(http), model_name=self._desk.model_name)
        if self._desk.balance.is_closed:
            raise stopping()
        owner: str = http.state.owner
        if not self._desk.balance.has_place(owner, most=MOST_UNDER_WAY):
            raise ApiError(
                status=429,
                message=f"{self._desk.balance.here} requests are here; try again later",
                code="queue_full",
                type_="rate_limit_error",
                retry_after_s=_RETRY_AFTER_S,
            )
        asked = replace(asked, asker=http.state.owner)
        return Answer(asked, request=next(self._numbers), asker=owner, desk=self._desk)
