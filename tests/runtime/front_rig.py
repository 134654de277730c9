"""A front over servers that speak vLLM's API in threads, and clients that ask it."""

import asyncio
import hashlib
import json
import threading
from collections.abc import Callable, Coroutine
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import stand_in_vllm
from starlette.applications import Starlette

from planner.routers.answer_length import QuantileLength
from planner.routers.instance_choice import make_instance_router
from planner.routers.load_aware import InstanceSpeed
from runtime.api.access import ApiKeys
from runtime.front.answer import Proxy, Waits
from runtime.front.backend import FrontBackend, metrics_page
from runtime.front.balance import Balance
from runtime.front.target import InstanceTarget
from runtime.instances.engine_load import EngineLoad
from runtime.instances.health import Condition, State
from runtime.metrics_port import metrics_route
from runtime.openai_app import assemble
from runtime.protocol.instance_orders import InstanceAddress

KEY = "hlx_key"
OTHER_KEY = "hlx_other"
OWNER = hashlib.sha256(KEY.encode()).hexdigest()
OTHER_OWNER = hashlib.sha256(OTHER_KEY.encode()).hexdigest()
READY = State(condition=Condition.READY)
PATIENCE_S = 90.0


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class There:
    """An instance that is there and that nobody starts or watches."""

    address: InstanceAddress
    state: State = READY
    load: EngineLoad = field(default_factory=EngineLoad)
    engine: stand_in_vllm.Engine | None = None
    ready_in_s: float | None = None

    async def run(self) -> None: ...

    async def stop(self) -> None: ...

    def hurry(self) -> None: ...


@contextmanager
def stand_in(model: str, *, served: str = "m") -> Any:
    """A stand-in for vLLM in a thread of this process."""
    engine = stand_in_vllm.Engine(model)
    handler = type(
        "Here", (stand_in_vllm.Handler,), {"engine": engine, "served": served, "key": "k"}
    )
    server = stand_in_vllm.Server(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield There(
            address=InstanceAddress(url=url, model=served, api_key="k", takes_cache_salt=True),
            engine=engine,
        )
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Front:
    """The app over `instances`, and what a client needs to ask it."""

    def __init__(
        self,
        instances: dict[str, There],
        *,
        router: str,
        http: httpx.AsyncClient,
        hold_s: float = 0.0,
        whole_answer_s: float = PATIENCE_S,
        most_requests: int | None = None,
    ):
        self.clock = Clock()
        self.lateness_clock = Clock()
        self.instances = instances
        self.balance = Balance(
            instances,
            router=make_instance_router(
                router,
                speeds={
                    name: InstanceSpeed(kv_room_tokens=4096, latency=None) for name in instances
                },
                weights=dict.fromkeys(instances, 1.0),
            ),
            clock=self.clock,
            most_requests={} if most_requests is None else dict.fromkeys(instances, most_requests),
        )
        self.proxy = Proxy(
            model_name="llama",
            targets={name: InstanceTarget(http, one.address) for name, one in instances.items()},
            balance=self.balance,
            lengths=QuantileLength(first_tokens=50, quantile=0.5),
            waits=Waits(instance_s=hold_s, answer_s=whole_answer_s, token_s=PATIENCE_S),
            clock=self.lateness_clock,
        )
        self._http = http
        keys = ApiKeys([OWNER, OTHER_OWNER])
        backend = FrontBackend(self.proxy, instances, keys)
        self.app: Starlette = assemble(
            lambda: backend,
            keys=keys,
            routes=[metrics_route(lambda: metrics_page(self.balance, instances))],
        )

    def send_to(self, name: str, address: InstanceAddress) -> None:
        """Requests for that instance go there from now on."""
        self.proxy.targets[name] = InstanceTarget(self._http, address)

    async def ask(self, body: dict[str, Any], **told: Any) -> "Told":
        path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
        return await ask(self.app, path, {"model": "llama", **body}, **told)


@dataclass
class Told:
    """What a client got."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    pieces: list[bytes] = field(default_factory=list)

    @property
    def body(self) -> Any:
        return json.loads(b"".join(self.pieces))

    @property
    def events(self) -> list[Any]:
        told = b"".join(self.pieces).decode()
        assert told.endswith("data: [DONE]\n\n")
        lines = [line[6:] for line in told.split("\n") if line.startswith("data: {")]
        return [json.loads(line) for line in lines]

    @property
    def text(self) -> str:
        choices = [choice for event in self.events for choice in event.get("choices", [])]
        return "".join(
            choice.get("text") or choice.get("delta", {}).get("content") or "" for choice in choices
        )

    @property
    def instance(self) -> str:
        return self.headers["x-helix-instance"]


async def ask(
    app: Starlette,
    path: str,
    body: dict[str, Any],
    *,
    key: str = KEY,
    hang_up: asyncio.Event | None = None,
    hear: Callable[[bytes], None] = lambda _: None,
) -> Told:
    told, sent = Told(), False
    gone = hang_up or asyncio.Event()

    async def receive() -> dict[str, Any]:
        nonlocal sent
        if not sent:
            sent = True
            return {"type": "http.request", "body": json.dumps(body).encode()}
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            told.status = message["status"]
            told.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            told.pieces.append(message.get("body", b""))
            hear(told.pieces[-1])

    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "query_string": b"",
        "headers": [(b"authorization", f"Bearer {key}".encode())],
    }
    await asyncio.wait_for(app(scope, receive, send), PATIENCE_S)  # type: ignore[arg-type]
    return told


class Silent(httpx.AsyncHTTPTransport):
    """Gives up at once on the server at `url`, which would say nothing until the timeout."""

    def __init__(self, url: str) -> None:
        super().__init__(trust_env=False)
        self._url = httpx.URL(url)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        answer = await super().handle_async_request(request)
        if request.url.port == self._url.port:
            await answer.aclose()
            raise httpx.ReadTimeout("nothing came", request=request)
        return answer


def with_front(
    models: dict[str, str],
    test: Callable[[Front], Coroutine[Any, Any, None]],
    *,
    router: str = "round_robin",
    hold_s: float = 0.0,
    whole_answer_s: float = PATIENCE_S,
    silent: str = "",
    most_requests: int | None = None,
) -> None:
    async def run() -> None:
        silent_url = instances[silent].address.url if silent else "nowhere"
        async with httpx.AsyncClient(transport=Silent(silent_url), timeout=PATIENCE_S) as http:
            await test(
                Front(
                    instances,
                    router=router,
                    http=http,
                    hold_s=hold_s,
                    whole_answer_s=whole_answer_s,
                    most_requests=most_requests,
                )
            )

    with ExitStack() as stack:
        instances = {name: stack.enter_context(stand_in(model)) for name, model in models.items()}
        asyncio.run(run())


CHAT = {"messages": [{"role": "user", "content": "hello there"}], "max_tokens": 4}
TEXT = {"prompt": "once upon", "max_tokens": 4}
WORDS = "w0 w1 w2 w3 "


async def client_get(front: Front, path: str, *, key: str = KEY) -> Told:
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(front.app), base_url="http://front"
    ) as http:
        answer = await http.get(path, headers={"Authorization": f"Bearer {key}"})
    return Told(status=answer.status_code, pieces=[answer.content])
