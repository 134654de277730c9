"""Speaks the command line, health, metrics and API of `vllm serve`, and computes nothing.

    python stand_in_vllm.py serve MODEL --port P [...]

The model's name says how it behaves, e.g. `llama:metrics=v0,step_s=0.01,mode=errors`; POST /behave
changes that while it runs. Modes: well, never_healthy, errors (500), garbage, held (until
released), opened (the same, once a stream has begun), writes (an answer that does not stream, until
the mode is another), breaks (the connection, after `break_after` tokens), comments (nothing but
these after `break_after` tokens, until released; then it goes on), dies (at once, with a last word
on stderr), stubborn (ignores SIGTERM).
"""

import argparse
import contextlib
import json
import os
import signal
import ssl
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

USAGE = {"v0": "vllm:gpu_cache_usage_perc", "v1": "vllm:kv_cache_usage_perc", "v9": "vllm:kv_fill"}
NUMBERS = ("step_s", "break_after", "context")
ROOM_TOKENS = 4096
HELD_S = 90.0  # at most, should nobody release it


class Engine:
    """What all requests share."""

    def __init__(self, model: str) -> None:
        self.behaviour: dict[str, Any] = {
            "mode": "well", "metrics": "v1", "step_s": 0.0, "break_after": 2, "word": "w",
            "context": 1e9, "usage": {},
        }  # fmt: skip
        for pair in filter(None, model.partition(":")[2].split(",")):
            name, _, value = pair.partition("=")
            self.behaviour[name] = float(value) if name in NUMBERS else value
        self.lock = threading.Lock()
        self.released = threading.Event()
        self.running = 0
        self.tokens = 0
        self.asked: list[dict[str, Any]] = []

    def metrics(self) -> str:
        usage = USAGE[self.behaviour["metrics"]]
        label = 'engine="0",model_name="m"'
        return (
            "# HELP vllm:num_requests_running Number of requests in model execution batches.\n"
            "# TYPE vllm:num_requests_running gauge\n"
            f"vllm:num_requests_running{{{label}}} {float(self.running)}\n"
            f"vllm:num_requests_waiting{{{label}}} 0.0\n"
            f"{usage}{{{label}}} {min(1.0, self.tokens / ROOM_TOKENS)}\n"
            f'vllm:cache_config_info{{block_size="16",num_gpu_blocks="{ROOM_TOKENS // 16}"}} 1.0\n'
        )


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    engine: Engine
    served: str
    key: str

    def log_message(self, format: str, *arguments: object) -> None:
        """vLLM logs every request; nobody reads it here."""

    def do_GET(self) -> None:
        if self.path == "/health":
            well = self.engine.behaviour["mode"] != "never_healthy"
            self._answer(200 if well else 503, b"")
        elif self.path == "/metrics":
            self._answer(200, self.engine.metrics().encode(), kind="text/plain; version=0.0.4")
        elif self.path == "/asked":
            self._json(200, self.engine.asked)
        elif self.path == "/v1/models" and self._may():
            self._json(200, {"object": "list", "data": [{"id": self.served, "object": "model"}]})
        elif self.path != "/v1/models":
            self._json(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/behave":
            self.engine.behaviour |= asked
            self._json(200, {})
            return
        if not self._may():
            return
        if asked["model"] != self.served:
            self._json(404, {"error": {"message": f"no model {asked['model']!r}", "code": 404}})
            return
        engine = self.engine
        engine.asked.append(asked)
        if self.path == "/v1/embeddings" and not engine.behaviour.get("embeds"):
            self._json(404, {"detail": "Not Found"})
            return
        if self.path in ("/v1/embeddings", "/tokenize"):
            data = [{"object": "embedding", "index": 0, "embedding": [0.5, -0.5]}]
            usage = {"prompt_tokens": 3, "total_tokens": 3}
            told = {"data": data, "model": self.served, "usage": usage}
            self._json(200, told if "embed" in self.path else {"count": 3, "tokens": [5, 6, 7]})
            return
        mode = engine.behaviour["mode"]
        if mode == "errors":
            self._json(500, {"error": {"message": "CUDA error: out of memory", "code": 500}})
        elif mode == "full":
            self.send_response(429)
            self.send_header("Retry-After", engine.behaviour["retry_after"])
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif mode == "refuses":  # in words that no header may have
            self._answer(
                400,
                b'{"error": "no"}',
                kind="application/json; by=\u2122".encode().decode("latin-1"),
            )
        elif mode == "garbage":
            self._answer(200, b"\x00<html>nonsense", kind="text/event-stream")
        elif asked.get("max_tokens", 16) > engine.behaviour["context"]:
            words = f"This model's maximum context length is {engine.behaviour['context']:g} tokens"
            self._json(400, {"error": {"message": words, "code": 400}})
        elif asked.get("max_tokens", 16) > 1000:
            self._json(400, {"error": {"message": "max_tokens is too large", "code": 400}})
        else:
            if mode == "held":
                engine.released.wait(HELD_S)
            prompt = len(str(asked.get("prompt") or asked.get("messages"))) // 4
            with engine.lock:
                engine.running += 1
                engine.tokens += prompt
            try:
                self._generate(asked, prompt, breaks=mode == "breaks")
            finally:
                with engine.lock:
                    engine.running -= 1
                    engine.tokens -= prompt

    def _generate(self, asked: dict[str, Any], prompt: int, *, breaks: bool) -> None:
        chat, count = self.path.endswith("chat/completions"), asked.get("max_tokens", 16)
        usage = {
            "prompt_tokens": prompt,
            "completion_tokens": count,
            "total_tokens": prompt + count,
            **self.engine.behaviour["usage"],
        }
        head = {"id": "x", "object": "chunk", "created": 1, "model": self.served}
        word = self.engine.behaviour["word"]
        words = [f"{word}{number} " for number in range(count)]
        if not asked.get("stream"):
            time.sleep(count * self.engine.behaviour["step_s"])
            while self.engine.behaviour["mode"] == "writes":
                time.sleep(0.01)
            text = "".join(words)
            said = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
            choices = [{"index": 0, **said, "finish_reason": "length"}]
            self._json(200, {**head, "choices": choices, "usage": usage})
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if chat:
            opening = {"index": 0, "delta": {"role": "assistant", "content": ""}}
            self._event({**head, "choices": [opening]})
        if self.engine.behaviour["mode"] == "opened":
            self.engine.released.wait(HELD_S)
        while self.engine.behaviour["mode"] == "empty":  # until nobody listens
            try:
                self._event({**head, "choices": [{"index": 0, "delta": {}}]})
            except OSError:
                self.close_connection = True
                return
        for number, word in enumerate(words):
            if breaks and number >= self.engine.behaviour["break_after"]:
                self.connection.close()
                self.close_connection = True
                return
            if self.engine.behaviour["mode"] == "comments":
                self._comment_until_released(after=number)
            time.sleep(self.engine.behaviour["step_s"])
            said = {"delta": {"content": word}} if chat else {"text": word}
            finish = "length" if number == count - 1 else None
            self._event({**head, "choices": [{"index": 0, **said, "finish_reason": finish}]})
        if (asked.get("stream_options") or {}).get("include_usage"):
            self._event({**head, "choices": [], "usage": usage})
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _comment_until_released(self, *, after: int) -> None:
        while after >= self.engine.behaviour["break_after"]:
            if self.engine.released.wait(0.02):
                return
            self._chunk(b": still here\n\n")

    def _event(self, body: dict[str, Any]) -> None:
        self._chunk(b"data: " + json.dumps(body).encode() + b"\n\n")

    def _chunk(self, content: bytes) -> None:
        self.wfile.write(f"{len(content):x}\r\n".encode() + content + b"\r\n")
        self.wfile.flush()

    def _may(self) -> bool:
        if self.key and self.headers.get("Authorization") != f"Bearer {self.key}":
            self._json(401, {"error": "Unauthorized"})
            return False
        return True

    def _json(self, status: int, body: object) -> None:
        self._answer(status, json.dumps(body).encode(), kind="application/json")

    def _answer(self, status: int, content: bytes, *, kind: str = "text/plain") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256  # as many as clients may come at once

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hung up ends its answer, as in the real one."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="vllm")
    serve = parser.add_subparsers(required=True).add_parser("serve")
    serve.add_argument("model")
    serve.add_argument("--host", default="")  # all interfaces, as vLLM
    serve.add_argument("--port", type=int, default=8000)
    serve.add_argument("--served-model-name", required=True)
    serve.add_argument("--tensor-parallel-size", type=int, default=1)
    serve.add_argument("--gpu-memory-utilization", type=float, default=0.9)
    serve.add_argument("--max-model-len", type=int)
    serve.add_argument("--disable-uvicorn-access-log", action="store_true")
    serve.add_argument("--enforce-eager", action="store_true")
    serve.add_argument("--ssl-keyfile")
    serve.add_argument("--ssl-certfile")
    options = parser.parse_args()
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    if len(gpus) != options.tensor_parallel_size:
        sys.exit(f"ValueError: world size {options.tensor_parallel_size} for GPUs {gpus}")
    engine = Engine(options.model)
    mode = engine.behaviour["mode"]
    if mode == "dies":
        sys.exit("RuntimeError: Engine core initialization failed. api_key=hlx_verysecret")
    print(f"INFO: serving {options.model} on GPUs {gpus}", flush=True)
    stop = signal.SIG_IGN if mode == "stubborn" else lambda *_: os._exit(0)
    signal.signal(signal.SIGTERM, stop)
    Handler.engine, Handler.served = engine, options.served_model_name
    Handler.key = os.environ.get("VLLM_API_KEY", "")
    server = Server((options.host, options.port), Handler)
    if options.ssl_certfile:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(options.ssl_certfile, options.ssl_keyfile)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()


if __name__ == "__main__":
    main()
