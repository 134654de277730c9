"""A coordinator as far as a chat client can tell: a real server on loopback that speaks OpenAI."""

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

HELIX = {
    "request": f"{1:016x}",
    "pipeline": [
        {"node": "tower", "first": 0, "end": 3},
        {"node": "laptop", "first": 3, "end": 4},
    ],
    "ttft_s": 0.25,
    "queue_s": 0.0,
}
WAIT_S = 60.0


class ChatDouble:
    """Answers each chat with the words of `words`; a context manager.

    `refusal` (status, body, headers) is answered instead if it is set, its body as JSON unless it
    is bytes. `hold` keeps the stream open
    after its first word until the client hangs up, which sets `hung_up`; `break_off` ends the
    connection after it. `request` is the number that every answer gives itself.
    """

    def __init__(self, *words: str) -> None:
        self.words = words
        self.refusal: tuple[int, Any, dict[str, str]] | None = None
        self.hold = False
        self.request = HELIX["request"]
        self.break_off = False
        self.hung_up = threading.Event()
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.encodings: list[str] = []
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        app = Starlette(routes=[Route("/v1/chat/completions", self._chat, methods=["POST"])])
        config = uvicorn.Config(app, log_config=None, lifespan="off")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def __enter__(self) -> "ChatDouble":
        self._socket.listen()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(WAIT_S)
        self._socket.close()

    def _serve(self) -> None:
        asyncio.run(self._server.serve([self._socket]))

    async def _chat(self, request: Request) -> Response:
        self.bodies.append(await request.json())
        self.keys.append(request.headers["Authorization"].removeprefix("Bearer "))
        self.encodings.append(request.headers["Accept-Encoding"])
        if self.refusal is not None:
            status, body, headers = self.refusal
            if isinstance(body, bytes):
                return Response(body, status_code=status, headers=headers)
            return JSONResponse(body, status_code=status, headers=headers)
        return StreamingResponse(self._events(request), media_type="text/event-stream")

    async def _events(self, request: Request) -> AsyncIterator[str]:
        for word in self.words:
            yield _event({"choices": [{"index": 0, "delta": {"content": word}}]})
            if self.break_off:
                raise ConnectionAbortedError("as asked")
            if self.hold:
                try:
                    await asyncio.sleep(WAIT_S)
                finally:
                    self.hung_up.set()
        yield _event(
            {
                "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
                "helix": {**HELIX, "request": self.request},
            }
        )
        yield _event({"choices": [], "usage": {"completion_tokens": len(self.words)}})
        yield "data: [DONE]\n\n"


def _event(content: dict[str, Any]) -> str:
    return f"data: {json.dumps(content)}\n\n"
