"""`python benchmarks/serving/token_path.py CHECKPOINT`: what a token costs on its way to a client.

A stage that runs no model draws tokens at once for many streams; a coordinator turns them into text
and events, and one client reads them. CHECKPOINT gives the tokenizer. Prints tokens/s, of
coordinator and stage the microseconds of CPU time for a token, and by how much the gap between two
tokens of a stream is longer than a step. The stage notes when its steps really ended, so at the end
that gap is divided into what the stage took and what came behind it: how long a token is on its way
from the end of its step to the client, and by how much its gap at the client is longer than the gap
between the two steps (median and p95; only with few streams is that the way, and not the queue for
processors). Where fewer processors are free than these three processes would use, the CPU times are
what can be compared.
"""

import argparse
import json
import re
import selectors
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import psutil
from cluster import API_KEY, MODEL, Running, running_chain

from runtime.checkpoints.model_facts import read_sizes

_PROMPT_TOKENS = 8
_PAGE_ROOM = 1e8  # token-layers: of no concern here
_TOKEN = b'"token_ids":['  # one event each; the prompt's ids have another name
_REQUEST = re.compile(rb'"request":"([0-9a-f]{16})"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Which request it was, and when each of its tokens came."""

    request: int
    arrivals_s: tuple[float, ...]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--output-tokens", type=int, default=200)
    parser.add_argument("--step-ms", type=float, default=5.0, help="how long a step lasts")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--shared-port", action="store_true", help="stages reach the coordinator where clients do"
    )
    options = parser.parse_args()
    sizes = read_sizes(options.checkpoint)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        emulation, stamps = folder / "node.json", folder / "stamps.json"
        emulation.write_text(
            json.dumps(_node(sizes.num_layers, sizes.vocab_size, step_s=options.step_ms / 1e3))
        )
        with running_chain(
            options.checkpoint,
            folder / "cluster",
            stages=1,
            num_layers=sizes.num_layers,
            threads=1,
            memory_budget_bytes=1 << 30,
            max_context_tokens=1024,
            mean_output_tokens=options.output_tokens,
            emulation=emulation,
            stage_program=(str(Path(__file__).with_name("stamping_stage.py")), str(stamps)),
            shares_port=options.shared_port,
        ) as running:
            repeats = [
                _measure(
                    running,
                    streams=options.streams,
                    output_tokens=options.output_tokens,
                    step_s=options.step_ms / 1e3,
                )
                for _ in range(options.repeats)
            ]
        ended_s = {
            (request, position): seconds for request, position, seconds in _read_stamps(stamps)
        }
    for answers in repeats:
        _tell_apart(answers, ended_s, step_s=options.step_ms / 1e3)


def _measure(running: Running, *, streams: int, output_tokens: int, step_s: float) -> list[Answer]:
    before = [_cpu_s(process) for process in running.processes]
    began_s = time.monotonic()
    answers = _read_all(running.url, streams=streams, output_tokens=output_tokens)
    seconds = time.monotonic() - began_s
    tokens = streams * output_tokens
    stage, coordinator = (
        1e6 * (_cpu_s(process) - was) / tokens
        for process, was in zip(running.processes, before, strict=True)
    )
    beyond = [gap_s - step_s for answer in answers for gap_s in _gaps(answer.arrivals_s)]
    print(
        f"{tokens / seconds:7.0f} tokens/s   coordinator {coordinator:6.1f} us a token   "
        f"stage {stage:6.1f}   gaps beyond a step {_spread(beyond)}"
    )
    sys.stdout.flush()
    return answers


def _tell_apart(
    answers: list[Answer], ended_s: dict[tuple[int, int], float], *, step_s: float
) -> None:
    """What the stage made of a step, and what came behind it. Raises KeyError for a token that no
    step drew."""
    of_stage, on_way, added = [], [], []
    for answer in answers:
        ends_s = [
            ended_s[answer.request, _PROMPT_TOKENS + number]
            for number in range(len(answer.arrivals_s))
        ]
        on_way += [came - ended for came, ended in zip(answer.arrivals_s, ends_s, strict=True)]
        of_stage += [gap_s - step_s for gap_s in _gaps(ends_s)]
        pairs = zip(_gaps(answer.arrivals_s), _gaps(ends_s), strict=True)
        added += [at_client - at_stage for at_client, at_stage in pairs]
    print(
        f"from the end of a step to the client {_spread(on_way)}   gaps longer than the stage's "
        f"{_spread(added)}   the stage's beyond a step {_spread(of_stage)}"
    )


def _gaps(times_s: Sequence[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(times_s)]


def _spread(seconds: list[float]) -> str:
    p95 = sorted(seconds)[int(0.95 * len(seconds))]
    return f"{1e3 * statistics.median(seconds):.2f} ms, p95 {1e3 * p95:.2f} ms"


def _read_stamps(path: Path) -> list[tuple[int, int, float]]:
    return [tuple(stamp) for stamp in json.loads(path.read_text())]


def _cpu_s(process: psutil.Process) -> float:
    spent = process.cpu_times()
    return float(spent.user + spent.system)


def _read_all(url: str, *, streams: int, output_tokens: int) -> list[Answer]:
    """Raises RuntimeError for another answer than was asked for."""
    where = urlsplit(url)
    address = where.hostname or "", where.port or 0
    connections: list[socket.socket] = []
    pieces: dict[int, list[tuple[float, bytes]]] = {}
    with selectors.DefaultSelector() as selector:
        for number in range(streams):
            connection = socket.create_connection(address)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            connection.sendall(_request(where.netloc, number, output_tokens))
            selector.register(connection, selectors.EVENT_READ, data=connection)
            connections.append(connection)  # open till the end: none gets the number of another
            pieces[connection.fileno()] = []
        while selector.get_map():
            ready = selector.select()
            now_s = time.monotonic()  # parsing waits: one stream must not delay another's stamp
            for key, _ in ready:
                if piece := key.data.recv(1 << 16):
                    pieces[key.fd].append((now_s, piece))
                else:
                    selector.unregister(key.data)
    for connection in connections:
        connection.close()
    return [_answer(of_stream, output_tokens) for of_stream in pieces.values()]


def _request(netloc: str, number: int, output_tokens: int) -> bytes:
    body = json.dumps(
        {
            "model": MODEL,
            "prompt": [5 + number % 200 + place for place in range(_PROMPT_TOKENS)],
            "max_tokens": output_tokens,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,  # so that tokens without text have an event, too
            "seed": number,
        }
    ).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: {netloc}\r\nAuthorization: Bearer {API_KEY}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + body


def _answer(pieces: list[tuple[float, bytes]], output_tokens: int) -> Answer:
    whole = bytearray()
    arrivals_s: list[float] = []
    for came_s, piece in pieces:
        seen = max(0, len(whole) - len(_TOKEN) + 1)
        whole += piece
        arrivals_s += [came_s] * whole.count(_TOKEN, seen)
    request = _REQUEST.search(whole)
    usage = f'"completion_tokens":{output_tokens},'.encode()
    if request is None or usage not in whole or len(arrivals_s) != output_tokens:
        raise RuntimeError(whole[-400:].decode(errors="replace"))
    return Answer(request=int(request[1], 16), arrivals_s=tuple(arrivals_s))


def _node(num_layers: int, vocab_size: int, *, step_s: float) -> dict[str, object]:
    return {
        "model": {
            "name": MODEL,
            "num_layers": num_layers,
            "activation_bytes_per_token": 2,
            "token_bytes": 4,
            "bytes_per_layer": 1e6,
        },
        "profile": {
            "name": "node",
            "gpu": "none",
            "vram_bytes": 1e12,
            "max_layers": num_layers,
            "tokens_per_s": [1e6] * num_layers,
            "kv_capacity_token_layers": [_PAGE_ROOM] * num_layers,
            "layer_times": {
                "prompt": [[1, 1e-9], [512, 1e-9]],
                "decode": [[1, 1e-9], [512, 1e-9]],
            },
        },
        "links": {},
        "vocab_size": vocab_size,
        "step_overhead_s": step_s,
    }


if __name__ == "__main__":
    main()
