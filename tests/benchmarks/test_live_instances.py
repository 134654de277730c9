"""What the benchmark of live instances counts: tokens that were written, not those asked for."""

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from benchmarks.instances.live import drive, likely_weights
from planner.workload.request import Lengths


class _Instance(BaseHTTPRequestHandler):
    """Answers prompts of one token in full, of two by half, and fails of others."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt, wanted = len(asked["prompt"]), asked["max_tokens"]
        usage = {"prompt_tokens": prompt, "completion_tokens": wanted // prompt}
        body = {"usage": usage} if prompt < 3 else {"error": {"message": "out of memory"}}
        self.send_response(200 if prompt < 3 else 500)
        self.send_header("x-helix-instance", "fast")
        self.end_headers()
        self.wfile.write(b"data: " + json.dumps(body).encode() + b"\n\ndata: [DONE]\n\n")

    def log_message(self, format: str, *arguments: object) -> None:
        """Nobody reads it."""


@pytest.fixture
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Instance)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_only_tokens_that_were_written_count(url: str) -> None:
    now_s = iter(range(100))
    requests = [Lengths(prompt_tokens=tokens, output_tokens=20) for tokens in (1, 2, 3)]
    outcome = asyncio.run(
        drive(url, requests, rate_per_s=1000.0, seed=1, clock=lambda: float(next(now_s)))
    )
    assert outcome.failed == 2
    assert outcome.output_tokens_per_s == pytest.approx((20 + 10) / 3)


def test_weights_are_swept_around_what_a_simulation_of_the_instances_finds_best() -> None:
    """Of two as fast, one thrice as slow: those that give the slow one least come first."""

    def told(slowness: float) -> dict[str, object]:
        decode = (0.0, slowness * 1.5e-3, 0.0, slowness * 0.016)
        prefill = (slowness * 4e-4, 0.0, 0.0, 0.0)
        return {"times": {"prefill": prefill, "decode": decode}, "kv_room_tokens": 12_000}

    weights = likely_weights(
        {"fast": told(1.0), "middle": told(1.8), "slow": told(3.0)},
        [Lengths(prompt_tokens=200, output_tokens=150)] * 200,
        rate_per_s=5.0,
        seed=1,
        count=3,
    )
    assert len(set(weights)) == 3
    assert all(fast > middle > slow for fast, middle, slow in weights)
    assert weights[0][0] == pytest.approx(3.5, abs=1.0)
