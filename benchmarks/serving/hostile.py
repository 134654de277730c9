"""Ten thousand hostile requests against a real coordinator and real stages: nothing stays behind.

    PYTHONPATH=. python benchmarks/serving/hostile.py [--requests N] [--at-once N] [--pages N]

Clients leave at any moment, send nonsense and ask for more than the pools hold. Exits with 1 unless
every answer is right, no answer is a 500, all pages come back and memory stays flat: what
each process holds is looked at every thousand requests, and told.
Ctrl-C ends the attack early; what was seen until then is judged.
"""

import argparse
import asyncio
import json
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cluster import API_KEY, MODEL, PAGE_TOKENS, Running, running_chain

from runtime.engine.kv_cache import page_bytes
from runtime.engine.limits import EngineLimits
from runtime.engine.memory import activation_bytes, fit_step
from runtime.models.config import read_config
from runtime.models.tiny_checkpoint import TinySizes, make_tiny_checkpoint

SIZES = TinySizes(
    num_layers=6,
    hidden_size=32,
    intermediate_size=64,
    vocab_size=300,
    max_position_embeddings=256,
)
STAGES = 3
CONTEXT = 256
LONGEST = 60  # output tokens; the coordinator expects far fewer, so pages run out
EXPECTED = 8.0
STEP_TOKENS = 512  # as StageAssignment has it
FLAT_BYTES = 16 * 2**20  # growth of a process that passes for none
_LOOKED_AT = 1000  # requests, or the first half: so often memory is looked at
_PATIENCE_S = 600.0
_TOKEN = re.compile(rb'"token_ids":\[(\d+)\]')


@dataclass(slots=True, kw_only=True)
class Tally:
    """What became of the requests so far."""

    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def count(self, outcome: str) -> None:
        self.outcomes[outcome] += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What every process held after so many requests."""

    requests: int
    resident_bytes: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    token_ids: list[int]
    answer: list[int]  # what one node alone says


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--at-once", type=int, default=64)
    parser.add_argument("--pages", type=int, default=200, help="of each stage, which has 2 layers")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hostile-") as name:
        folder = Path(name)
        checkpoint = folder / "checkpoint"
        make_tiny_checkpoint(checkpoint, sizes=SIZES, seed=5)
        with running_chain(
            checkpoint,
            folder / "run",
            stages=STAGES,
            num_layers=SIZES.num_layers,
            threads=1,
            memory_budget_bytes=_budget(checkpoint, pages=options.pages),
            max_context_tokens=CONTEXT,
            mean_output_tokens=EXPECTED,
        ) as running:
            problems = asyncio.run(_attack(running, options))
            problems += _left_behind(folder / "run", running)
    print("\n".join(problems) or "nothing stayed behind")
    return 1 if problems else 0


def _budget(checkpoint: Path, *, pages: int) -> int:
    """Memory that gives the last stage that many pages."""
    config = read_config(checkpoint)
    limits = EngineLimits(
        page_tokens=PAGE_TOKENS, max_batch_tokens=STEP_TOKENS, max_context_tokens=CONTEXT
    )
    fixed = config.weights_bytes(SIZES.num_layers - 2, SIZES.num_layers)
    paged = pages * page_bytes(config, page_tokens=PAGE_TOKENS)
    budget = fixed + paged
    while True:  # what a step may take hangs on the budget
        fitted = fit_step(config, limits, memory_budget_bytes=budget)
        needed = fixed + paged + activation_bytes(config, fitted, has_head=True)
        if needed <= budget:
            return budget
        budget = needed


async def _attack(running: Running, options: argparse.Namespace) -> list[str]:
    dice = random.Random(options.seed)
    port = int(running.url.rpartition(":")[2])
    prompts = [prompt async for prompt in _prompts(port, dice)]
    tally = Tally()
    numbers = iter(range(options.requests))
    sent = 0
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stopped.set)
    began_s, began_cpu_s = time.monotonic(), running.cpu_s()
    look_every = max(1, min(_LOOKED_AT, options.requests // 2))
    looks: list[Look] = []

    async def client(seed: int) -> None:
        own = random.Random(seed)
        nonlocal sent
        for number in numbers:
            if stopped.is_set():
                return
            if number and number % look_every == 0:
                looks.append(Look(requests=number, resident_bytes=_resident_bytes(running)))
            await _one(port, own, own.choice(prompts), tally)
            sent += 1

    seeds = [dice.getrandbits(64) for _ in range(options.at_once)]
    await asyncio.gather(*(client(seed) for seed in seeds))
    await _until_idle(port)
    for prompt in prompts:  # pages that cancelled requests wrote hold no nonsense
        answer = await _answer_of(port, prompt.token_ids, max_tokens=LONGEST)
        if answer != prompt.answer:
            tally.wrong.append(f"afterwards {prompt.token_ids} got {answer}")
    await _until_idle(port)
    print(
        f"{sent} requests in {time.monotonic() - began_s:.0f} s, "
        f"{running.cpu_s() - began_cpu_s:.0f} CPU s of the cluster:",
        ", ".join(f"{count} {what}" for what, count in sorted(tally.outcomes.items())),
    )
    looks.append(Look(requests=sent, resident_bytes=_resident_bytes(running)))
    return tally.wrong[:20] + list(_grown(running, looks))


async def _prompts(port: int, dice: random.Random) -> AsyncIterator[Prompt]:
    """A few beginnings that many share, and tails of their own; answered one at a time."""
    heads = [[dice.randrange(5, 260) for _ in range(40)] for _ in range(4)]
    for _ in range(12):
        tail = [dice.randrange(5, 260) for _ in range(dice.randrange(1, 50))]
        token_ids = dice.choice(heads) + tail
        answer = await _answer_of(port, token_ids, max_tokens=LONGEST)
        yield Prompt(token_ids=token_ids, answer=answer)


async def _answer_of(port: int, token_ids: Sequence[int], *, max_tokens: int) -> list[int]:
    status, body = await _whole(port, _asked(token_ids, max_tokens=max_tokens))
    if status != 200:
        raise RuntimeError(f"a lone request got {status}: {body[:500]!r}")
    found: list[int] = json.loads(body)["choices"][0]["token_ids"]
    return found


async def _one(port: int, dice: random.Random, prompt: Prompt, tally: Tally) -> None:
    """One request, in a way drawn by lot."""
    max_tokens = dice.choice((1, 2, 5, 10, 30, LONGEST))
    asked = _asked(prompt.token_ids, max_tokens=max_tokens, stream=dice.random() < 0.5)
    way = dice.random()
    if way < 0.1:
        body, wanted = dice.choice(_NONSENSE)
        status, answer = await _whole(port, body)
        tally.count(f"nonsense: {status}")
        if status != wanted:
            tally.wrong.append(f"{body[:100]!r} got {status}: {answer[:300]!r}")
    elif way < 0.5:
        status, answer = await _whole(port, asked)
        _judge(status, answer, prompt, max_tokens, tally)
    else:
        await _leave(port, asked, dice)
        tally.count("left")


def _judge(status: int, answer: bytes, prompt: Prompt, max_tokens: int, tally: Tally) -> None:
    """A whole answer is the one that the prompt got when it was alone."""
    if status in (429, 503):
        tally.count(f"{status} {json.loads(answer)['error']['code']}")
        return
    if status == 200 and b'"error"' in answer:
        tally.count("failed in the stream")
        return
    if answer.startswith(b"{"):
        got = json.loads(answer)["choices"][0]["token_ids"] if status == 200 else []
    else:
        got = [int(token) for token in _TOKEN.findall(answer)]
    tally.count("answered")
    if status != 200 or got != prompt.answer[:max_tokens]:
        tally.wrong.append(
            f"{status}: {max_tokens} tokens after {prompt.token_ids} are {got}, "
            f"not {prompt.answer[:max_tokens]}: {answer[:300]!r}"
        )


async def _leave(port: int, asked: bytes, dice: random.Random) -> None:
    """Hang up: within the request, at once, after a while, or after some of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    whole = _http(asked)
    try:
        way = dice.randrange(4)
        writer.write(whole[: dice.randrange(len(whole))] if way == 0 else whole)
        await writer.drain()
        if way == 2:
            await asyncio.sleep(dice.random() * 0.3)
        elif way == 3:
            for _ in range(dice.randrange(1, 12)):
                await reader.read(400)
    finally:
        if dice.random() < 0.5:
            writer.transport.abort()  # a reset, not a polite end
        else:
            writer.close()


async def _whole(port: int, asked: bytes) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(_http(asked))
        await writer.drain()
        answer = await asyncio.wait_for(reader.read(), _PATIENCE_S)
    finally:
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def _asked(token_ids: Sequence[int], *, max_tokens: int, stream: bool = False) -> bytes:
    body = {
        "model": MODEL,
        "prompt": list(token_ids),
        "max_tokens": max_tokens,
        "temperature": 0,
        "stream": stream,
        "return_token_ids": True,
    }
    return json.dumps(body).encode()


def _http(body: bytes) -> bytes:
    return (
        f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {API_KEY}\r\n"
        f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body


def _wrong(**changes: object) -> bytes:
    return json.dumps({"model": MODEL, "prompt": [5, 6]} | changes).encode()


_NONSENSE = [  # a body, and the status it gets
    (b"", 400),
    (b"\xff\xfe{}", 400),
    (b"[" * 5000, 400),
    (_wrong(prompt=""), 400),
    (_wrong(prompt=[]), 400),
    (_wrong(prompt=[10**6]), 400),
    (_wrong(prompt=["x"] * 5000), 400),
    (_wrong(prompt=[5] * CONTEXT), 400),
    (_wrong(prompt="x" * 10**6), 400),
    (_wrong(prompt=[5] * 200, max_tokens=100), 400),
    (_wrong(max_tokens=0), 400),
    (_wrong(max_tokens=-5), 400),
    (_wrong(max_tokens=10**12), 400),
    (_wrong(max_tokens="many"), 400),
    (_wrong(n=0), 400),
    (_wrong(n=1000), 400),
    (_wrong(logprobs=6), 400),
    (_wrong(stop=["x"] * 1000), 400),
    (_wrong(stop=[""]), 400),
    (_wrong(logit_bias={"300": 1}), 400),
    (_wrong(logit_bias={"-1": 1}), 400),
    (_wrong(logit_bias={"9" * 5000: 1}), 400),
    (_wrong(temperature=float("nan")), 400),
    (_wrong(beams=4), 400),
    (_wrong(model="other"), 404),
    (_wrong(response_format={"type": "json_schema", "json_schema": {"name": "x"}}), 400),
]


async def _until_idle(port: int) -> None:
    deadline_s = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline_s:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        state = json.loads((await reader.read()).partition(b"\r\n\r\n")[2])
        writer.close()
        if state["requests_running"] == state["requests_waiting"] == 0:
            return
        await asyncio.sleep(0.5)
    raise RuntimeError(f"requests still run although no client asks: {state}")


def _resident_bytes(running: Running) -> list[int]:
    return [process.memory_info().rss for process in running.processes]


def _grown(running: Running, looks: Sequence[Look]) -> Iterator[str]:
    print("MiB after", " ".join(str(look.requests) for look in looks), "requests:")
    for index, process in enumerate(running.processes):
        name = " ".join(process.cmdline()[3:4])
        held = [look.resident_bytes[index] for look in looks]
        print(f"{name}:", " ".join(f"{size / 2**20:.1f}" for size in held))
        if held[-1] - held[0] > FLAT_BYTES:
            yield f"the {name} {process.pid} has grown by {(held[-1] - held[0]) / 2**20:.1f} MiB"


def _left_behind(folder: Path, running: Running) -> Iterator[str]:
    """What the stages hold, by what they report once a second."""
    deadline_s = time.monotonic() + 60
    for log in sorted(folder.glob("node-*.events")):
        stats = _last_stats(log)
        while stats["kv_pages_used"] and time.monotonic() < deadline_s:
            time.sleep(0.5)
            stats = _last_stats(log)
        print(
            f"{log.stem}: {stats['kv_pages_used']} of {stats['kv_pages_total']} pages held, "
            f"{stats['sequences']} requests, {stats['preemptions_total']} preemptions, "
            f"{stats['prefix_tokens_total']} tokens reused"
        )
        if stats["kv_pages_used"] or stats["sequences"]:
            yield f"{log.stem} holds pages of no request"
    for process in running.processes:
        if not process.is_running():
            yield f"process {process.pid} has ended"


def _last_stats(log: Path) -> dict[str, int]:
    lines = [line for line in log.read_text().splitlines() if '"stats"' in line]
    stats: dict[str, int] = json.loads(lines[-1])["stats"]
    return stats


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
