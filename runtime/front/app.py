"""The front's HTTP face: /v1/chat/completions, /v1/completions, /v1/models and /health."""

import itertools
from collections.abc import Mapping

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from runtime.coordinator.access import ApiKeys, RequireApiKey
from runtime.coordinator.error_answers import EXCEPTION_HANDLERS
from runtime.coordinator.limits import read_body
from runtime.front.answer import Answer, Desk, stopping
from runtime.front.asked import Endpoint, read_asked
from runtime.instances.instance import Instance
from runtime.protocol.openai import ApiError

MOST_UNDER_WAY = 4096
_RETRY_AFTER_S = 5.0


def create_front(*, desk: Desk, instances: Mapping[str, Instance], keys: ApiKeys) -> Starlette:
    """`instances` by name, as `desk` has their doors."""
    face = _Face(desk, instances)
    return Starlette(
        routes=[
            Route("/v1/chat/completions", face.chat, methods=["POST"]),
            Route("/v1/completions", face.completion, methods=["POST"]),
            Route("/v1/models", face.models, methods=["GET"]),
            Route("/health", face.health, methods=["GET"]),
        ],
        middleware=[Middleware(RequireApiKey, keys=keys)],
        exception_handlers=EXCEPTION_HANDLERS,
    )


class _Face:
    def __init__(self, desk: Desk, instances: Mapping[str, Instance]) -> None:
        self._desk = desk
        self._instances = instances
        self._numbers = itertools.count(1)

    async def chat(self, http: Request) -> Answer:
        return await self._answer(http, "/v1/chat/completions")

    async def completion(self, http: Request) -> Answer:
        return await self._answer(http, "/v1/completions")

    async def models(self, http: Request) -> Response:
        name = self._desk.model_name
        entry = {"id": name, "object": "model", "created": 0, "owned_by": "helixweb"}
        return JSONResponse({"object": "list", "data": [entry]})

    async def health(self, http: Request) -> Response:
        """200 while at least one instance takes requests; the body says how each is."""
        balance = self._desk.balance
        open_ones = balance.open_instances()
        told = {}
        for name, instance in self._instances.items():
            trouble = balance.trouble_of(name)
            load = instance.load
            told[name] = {
                "condition": instance.state.condition,
                "open": name in open_ones,
                "message": instance.state.message or ("" if trouble is None else trouble.reason),
                "requests_under_way": balance.under_way_at(name),
                "requests_answered": balance.answered[name],
                "kv_usage": load.kv_usage,
                "complaint": load.complaint,
            }
        status = "ok" if open_ones else "no instance is ready"
        if balance.is_closed:
            status, open_ones = "stopping", []
        body = {"status": status, "requests_under_way": balance.under_way, "instances": told}
        return JSONResponse(body, status_code=200 if open_ones else 503)

    async def _answer(self, http: Request, endpoint: Endpoint) -> Answer:
        asked = read_asked(endpoint, await read_body(http), model_name=self._desk.model_name)
        if self._desk.balance.is_closed:
            raise stopping()
        if self._desk.balance.here >= MOST_UNDER_WAY:
            raise ApiError(
                status=429,
                message=f"{MOST_UNDER_WAY} requests are here; try again later",
                code="queue_full",
                type_="rate_limit_error",
                retry_after_s=_RETRY_AFTER_S,
            )
        return Answer(asked, request=next(self._numbers), asker=http.state.owner, desk=self._desk)
