"""Instances as a backend of the OpenAI application: routed to, relayed, and reported.

Engines have metrics of their own; the front's are what only it knows: where requests went, what
failed, and which instances are asked now.
"""

import asyncio
import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from runtime.api.access import ApiKeys
from runtime.front.answer import Answer, Proxy
from runtime.front.asked import read_asked
from runtime.front.balance import Balance
from runtime.front.refusals import stopping
from runtime.instances.health import Condition
from runtime.instances.instance import Instance, look_after
from runtime.openai_app import Endpoint
from runtime.protocol.exposition import Samples, counter, gauge, page
from runtime.protocol.openai import ApiError
from runtime.tasks import cancel

MOST_UNDER_WAY = 4096
_RETRY_AFTER_S = 5.0
_OBSERVE_EVERY_S = 0.5


class InstanceBackend:
    """Owns instances and answers by them, through `proxy`, which has the router.

    It looks after the instances from `begin` until `close`.
    """

    def __init__(self, proxy: Proxy, instances: Mapping[str, Instance]) -> None:
        self.instances = instances
        self.balance = proxy.balance
        self._proxy = proxy
        self._numbers = itertools.count(1)
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self) -> None:
        works = [look_after(name, each) for name, each in self.instances.items()]
        self._tasks = [asyncio.create_task(work) for work in (*works, self._observe())]

    async def close(self) -> None:
        await cancel(*self._tasks)

    async def _observe(self) -> None:
        while True:
            self.balance.observe()
            await asyncio.sleep(_OBSERVE_EVERY_S)

    def model(self) -> dict[str, object]:
        return {"id": self._proxy.model_name}

    async def answer(self, endpoint: Endpoint, body: bytes, *, owner: str) -> Answer:
        asked = read_asked(endpoint, body, model_name=self._proxy.model_name)
        if self.balance.is_closed:
            raise stopping()
        if not self.balance.has_place(owner, most=MOST_UNDER_WAY):
            raise ApiError(
                message=f"{self.balance.here} requests are here; try again later",
                code="queue_full",
                retry_after_s=_RETRY_AFTER_S,
            )
        asked = replace(asked, asker=owner)
        return Answer(asked, request=next(self._numbers), proxy=self._proxy)


class FrontBackend(InstanceBackend):
    """The endpoints of a front; the OpenAI application calls it.

    That of a front, whose /health tells how each instance is.

    Without a key it says no more than a load balancer asks: why an instance is not ready may quote
    its log.
    """

    def __init__(self, proxy: Proxy, instances: Mapping[str, Instance], keys: ApiKeys) -> None:
        super().__init__(proxy, instances)
        self._keys = keys

    def health(self, http: Request) -> Response:
        """200 while at least one instance takes requests."""
        balance = self.balance
        open_ones = balance.open_instances()
        status = "ok" if open_ones else "no instance is ready"
        if balance.is_closed:
            status, open_ones = "stopping", []
        body: dict[str, Any] = {"status": status}
        if self._has_key(http):
            body["requests_under_way"] = balance.under_way
            body["instances"] = {
                name: self._told(name, is_open=name in open_ones) for name in self.instances
            }
        return JSONResponse(body, status_code=200 if open_ones else 503)

    def _has_key(self, http: Request) -> bool:
        try:
            self._keys.check(http.headers.get("authorization"))
        except ApiError:
            return False
        return True

    def _told(self, name: str, *, is_open: bool) -> dict[str, Any]:
        """How an instance is, for people who may ask it."""
        balance, instance = self.balance, self.instances[name]
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


def metrics_page(balance: Balance, instances: Mapping[str, Instance]) -> bytes:
    open_ones = set(balance.open_instances())

    def of_each(values: Mapping[str, float]) -> Samples:
        return [({"instance": name}, values[name]) for name in instances]

    ready = {name: one.state.condition is Condition.READY for name, one in instances.items()}
    return page([
        gauge(
            "helix_front_requests",
            "here: sent to an instance, or waiting for one",
            [({}, balance.here)],
        ),
        gauge(
            "helix_front_requests_running",
            "sent to it and not ended",
            of_each({name: balance.under_way_at(name) for name in instances}),
        ),
        counter("helix_front_answers_total", "begun by it", of_each(balance.answered)),
        counter(
            "helix_front_failures_total",
            "requests that it did not answer as it should",
            of_each(balance.failures),
        ),
        counter(
            "helix_front_output_tokens_total", "given by it", of_each(balance.output_tokens)
        ),
        gauge("helix_front_instance_ready", "1 while it is well", of_each(ready)),
        gauge(
            "helix_front_instance_open",
            "1 while it is well and not left alone after a failure",
            of_each({name: name in open_ones for name in instances}),
        ),
    ])  # fmt: skip
