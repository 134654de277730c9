"""`python benchmarks/serving/token_path.py CHECKPOINT`: what a token costs on its way to a client.

A stage that runs no model draws tokens at once for many streams; a coordinator turns them into text
and events, and one client reads them. CHECKPOINT gives the tokenizer. Prints tokens/s, of
coordinator and stage the microseconds of CPU time for a token, and by how much the gap between two
tokens of a stream is longer than a step (median and p95; only with few streams is that the way, and
not the queue for processors). Where fewer processors are free than these three processes would use,
the CPU times are what can be compared.
"""

import argparse
import asyncio
import json
import socket
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import psutil
from cluster import API_KEY, MODEL, Running, running_chain

from runtime.checkpoints.model_facts import read_sizes

_PROMPT_TOKENS = 8
_PAGE_ROOM = 1e8  # token-layers: of no concern here


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--output-tokens", type=int, default=200)
    parser.add_argument("--step-ms", type=float, default=5.0, help="how long a step lasts")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    sizes = read_sizes(options.checkpoint)
    with tempfile.TemporaryDirectory() as folder:
        emulation = Path(folder) / "node.json"
        emulation.write_text(
            json.dumps(_node(sizes.num_layers, sizes.vocab_size, step_s=options.step_ms / 1e3))
        )
        with running_chain(
            options.checkpoint,
            Path(folder) / "cluster",
            stages=1,
            num_layers=sizes.num_layers,
            threads=1,
            memory_budget_bytes=1 << 30,
            max_context_tokens=1024,
            mean_output_tokens=options.output_tokens,
            emulation=emulation,
        ) as running:
            for _ in range(options.repeats):
                _measure(
                    running,
                    streams=options.streams,
                    output_tokens=options.output_tokens,
                    step_s=options.step_ms / 1e3,
                )


def _measure(running: Running, *, streams: int, output_tokens: int, step_s: float) -> None:
    before = [_cpu_s(process) for process in running.processes]
    began_s = time.perf_counter()
    arrivals = asyncio.run(_read_all(running.url, streams=streams, output_tokens=output_tokens))
    seconds = time.perf_counter() - began_s
    tokens = streams * output_tokens
    stage, coordinator = (
        1e6 * (_cpu_s(process) - was) / tokens
        for process, was in zip(running.processes, before, strict=True)
    )
    over_ms = sorted(1e3 * (b - a - step_s) for each in arrivals for a, b in pairwise(each))
    p50, p95 = (over_ms[int(part * len(over_ms))] for part in (0.5, 0.95))
    print(
        f"{tokens / seconds:7.0f} tokens/s   coordinator {coordinator:6.1f} us a token   "
        f"stage {stage:6.1f}   gaps beyond a step {p50:.2f} ms, p95 {p95:.2f} ms"
    )
    sys.stdout.flush()


def _cpu_s(process: psutil.Process) -> float:
    spent = process.cpu_times()
    return float(spent.user + spent.system)


async def _read_all(url: str, *, streams: int, output_tokens: int) -> list[list[float]]:
    where = urlsplit(url)
    return await asyncio.gather(
        *(
            _read(where.hostname or "", where.port or 0, number, output_tokens)
            for number in range(streams)
        )
    )


async def _read(host: str, port: int, number: int, output_tokens: int) -> list[float]:
    """When parts of a stream came; raises RuntimeError for another answer than was asked for."""
    body = json.dumps(
        {
            "model": MODEL,
            "prompt": [5 + number % 200 + place for place in range(_PROMPT_TOKENS)],
            "max_tokens": output_tokens,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            "seed": number,
        }
    ).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {API_KEY}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection(host, port)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    writer.write(head.encode() + body)
    answer, arrivals = bytearray(), []
    while piece := await reader.read(1 << 16):
        arrivals.append(time.perf_counter())
        answer += piece
    writer.close()
    if f'"completion_tokens":{output_tokens},'.encode() not in answer:
        raise RuntimeError(answer[-400:].decode(errors="replace"))
    return arrivals[1:-1]  # without the head, and the end behind the last token


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
