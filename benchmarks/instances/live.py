"""Three instances of unequal speed as real processes behind a front: who balances them best?

    python -m benchmarks.instances.live [--requests 300] [--rate 4] [--lengths FILE.csv] [--seed 1]

Starts our engine three times, emulated (it takes the times and the memory of a profile and computes
nothing), measures each over its API for the latency model, and then sends the same requests through
a front with every router: load-aware, round robin, and weighted round robin with those weights that
a simulation of the same requests finds best of many. Prints output tokens/s and the finish-time
spread. Exit code 1: the spread is 10 % or more, or tokens/s are below 1.3 times round robin's or
0.97 times the best weights'. A run takes requests / rate seconds and the last answers, round robin
twice as long; all about 11 minutes.
"""

import argparse
import asyncio
import hashlib
import itertools
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from benchmarks.instances.scheduling import simulate_instances
from planner.domain.layer_times import LayerTimes
from planner.domain.model_spec import ModelSpec
from planner.domain.problem import Workload
from planner.domain.profile import ComputeProfile
from planner.routers.base import RequestSize
from planner.routers.instance_choice import WeightedTurns
from planner.simulator.instances import InstanceSpec
from planner.workload.lengths import lengths_from_csv, scaled_lengths
from planner.workload.request import Lengths
from runtime.membership.data_address import choose_port
from runtime.models.tiny_checkpoint import TinySizes, make_tiny_checkpoint
from runtime.protocol.emulation import Emulation
from runtime.protocol.instances import EngineTimes

MEAN_PROMPT_TOKENS, MEAN_OUTPUT_TOKENS = 220, 180  # ShareGPT's, in the shape of Azure's chats
WORKLOAD = Workload(mean_prompt_tokens=MEAN_PROMPT_TOKENS, mean_output_tokens=MEAN_OUTPUT_TOKENS)
CONTEXT_TOKENS = 4096
LAYERS = 4
KEY = "hlx_benchmark"
# Slowness and KV room in tokens: a step of b decodes takes slowness * (16 + 1.5 b) ms, a prompt
# slowness * 0.4 ms a token.
KINDS = {"fast": (1.0, 12_000), "middle": (1.8, 8_000), "slow": (3.0, 6_000)}
CANDIDATES = tuple(itertools.product((2, 2.5, 3, 3.5, 4, 4.5, 5, 6), (1.5, 1.8, 2, 2.2, 2.5), (1,)))
ROUTERS = ("load_aware", "round_robin", "weighted_round_robin")
_READY_S = 120.0
_PATIENCE_S = 900.0
_LANGUAGE = {"OMP_NUM_THREADS": "1", "HELIX_API_KEY": KEY}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """`finish_spread`: how much earlier than the last the first instance had nothing more to do."""

    output_tokens_per_s: float
    finish_spread: float
    shares: Mapping[str, int]
    failed: int


def emulation_of(slowness: float, room_tokens: int) -> Emulation:
    decode = ((1.0, 0.0175), (2.0, 0.019), (64.0, 0.112))
    times = LayerTimes(
        prompt=((1.0, slowness * 4e-4 / LAYERS),),
        decode=tuple((batch, slowness * step_s / LAYERS) for batch, step_s in decode),
    )
    profile = ComputeProfile(
        name="emulated",
        gpu="emulated",
        vram_bytes=16e9,
        max_layers=LAYERS,
        tokens_per_s=(1.0,) * LAYERS,
        kv_capacity_token_layers=tuple(float(room_tokens * LAYERS) for _ in range(LAYERS)),
        layer_times=times,
    )
    model = ModelSpec(
        name="tiny",
        num_layers=LAYERS,
        activation_bytes_per_token=256.0,
        token_bytes=4.0,
        bytes_per_layer=1e6,
    )
    return Emulation(profile=profile, model=model, vocab_size=300)


@contextmanager
def process(*arguments: str, log: Path) -> Iterator[None]:
    """`python -m runtime ...` until the block ends."""
    with log.open("ab") as output:
        started = subprocess.Popen(
            [sys.executable, "-m", "runtime", *arguments],
            stderr=output,
            env={**os.environ, **_LANGUAGE},
        )
        try:
            yield
        finally:
            started.send_signal(signal.SIGTERM)
            started.wait(60)


def wait_ready(url: str) -> None:
    """Raises SystemExit where nothing answers well in time."""
    deadline_s = time.monotonic() + _READY_S
    while time.monotonic() < deadline_s:
        try:
            health = httpx.get(f"{url}/health", trust_env=False, timeout=5)
            told = health.json().get("instances", {})
            if health.is_success and all(one["open"] for one in told.values()):
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.2)
    raise SystemExit(f"{url} was not ready within {_READY_S:g} s; see its log")


def measured(url: str) -> dict[str, Any]:
    """What `measure-instance` says: times and room."""
    lengths, batches = ("32", "128", "512"), ("1", "2", "4", "8", "12")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "runtime", "measure-instance", "--url", url, "--model", "m"),
            *("--lengths", *lengths, "--batches", *batches, "--output-tokens", "40"),
            *("--repeats", "1"),
        ],
        env={**os.environ, **_LANGUAGE},
        capture_output=True,
        text=True,
        check=True,
    )
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def arrivals_s(rate_per_s: float, *, seed: int) -> Iterator[float]:
    """Of a Poisson process, from 0 s; the same for the same seed."""
    chance, at_s = random.Random(seed), 0.0
    while True:
        yield at_s
        at_s += chance.expovariate(rate_per_s)


async def drive(
    url: str,
    requests: Sequence[Lengths],
    *,
    rate_per_s: float,
    seed: int,
    clock: Callable[[], float] = time.monotonic,
) -> Outcome:
    """The requests at `arrivals_s`, with prompts that are the same for the same seed."""
    chance = random.Random(seed)
    ends: dict[str, float] = {}
    shares: dict[str, int] = {}
    failed = 0
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx.AsyncClient(timeout=_PATIENCE_S, limits=limits, trust_env=False) as http:

        async def one(length: Lengths, ids: list[int]) -> int:
            nonlocal failed
            written = ""
            body = {
                "model": "m",
                "prompt": ids,
                "max_tokens": length.output_tokens,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
            headers = {"Authorization": f"Bearer {KEY}"}
            request = http.stream("POST", f"{url}/v1/completions", json=body, headers=headers)
            async with request as answer:
                async for line in answer.aiter_lines():
                    written = line if line.startswith(("data: {", "{")) else written
                tokens = _output_tokens(written)
                if tokens != length.output_tokens:
                    failed += 1
                    print(f"  failed ({answer.status_code}): {written[:300]}", flush=True)
                name = answer.headers.get("x-helix-instance", "none")
            ends[name] = clock()
            shares[name] = shares.get(name, 0) + 1
            return tokens or 0

        began_s, running = clock(), []
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        for at_s, length in zip(arrivals_s(rate_per_s, seed=seed), requests, strict=False):
            ids = [chance.randrange(5, 250) for _ in range(length.prompt_tokens)]
            await asyncio.sleep(started_s + at_s - loop.time())
            running.append(asyncio.create_task(one(length, ids)))
        output = sum(await asyncio.gather(*running))
    last_s = max(ends.values()) - began_s
    first_s = min(ends.get(name, began_s) for name in KINDS) - began_s
    return Outcome(
        output_tokens_per_s=output / last_s,
        finish_spread=1 - first_s / last_s,
        shares={name: shares.get(name, 0) for name in KINDS},
        failed=failed,
    )


def _output_tokens(last_event: str) -> int | None:
    """As the usage says; None where the stream did not end with it."""
    told = json.loads(last_event.removeprefix("data: ") or "{}").get("usage")
    return None if told is None else int(told["completion_tokens"])


def requests_of(arguments: argparse.Namespace) -> list[Lengths]:
    if arguments.lengths is not None:
        drawn: Iterator[Lengths] = itertools.cycle(
            lengths_from_csv(arguments.lengths, context_tokens=CONTEXT_TOKENS)
        )
    else:
        drawn = scaled_lengths(WORKLOAD, seed=arguments.seed)
    return list(itertools.islice(drawn, arguments.requests))


def likely_weights(
    told: Mapping[str, Mapping[str, Any]],
    requests: Sequence[Lengths],
    *,
    rate_per_s: float,
    seed: int,
    count: int,
) -> list[tuple[float, ...]]:
    """Those with which a simulation of the measured instances writes the most tokens/s."""
    specs = {
        kind: InstanceSpec(
            latency=EngineTimes.model_validate(one["times"]).latency(),
            kv_room_tokens=one["kv_room_tokens"],
        )
        for kind, one in told.items()
    }
    arrivals = list(zip(arrivals_s(rate_per_s, seed=seed), requests, strict=False))

    def output_tokens_per_s(weights: tuple[float, ...]) -> float:
        turns = WeightedTurns(dict(zip(specs, weights, strict=True)))

        def choose(number: int, length: Lengths) -> str:
            size = RequestSize(
                prompt_tokens=length.prompt_tokens, predicted_output_tokens=length.output_tokens
            )
            return turns.choose(number, size) or next(iter(specs))

        return simulate_instances(specs, arrivals, choose=choose).output_tokens_per_s

    return sorted(CANDIDATES, key=output_tokens_per_s, reverse=True)[:count]


def run_router(
    name: str,
    weights: Sequence[float],
    *,
    urls: Mapping[str, str],
    told: Mapping[str, Mapping[str, Any]],
    directory: Path,
    arguments: argparse.Namespace,
) -> Outcome:
    instances = [
        {
            "backend": "url",
            "name": kind,
            "url": urls[kind],
            "model": "m",
            "api_key_env": "HELIX_API_KEY",
            "stream_usage": True,
            "weight": weight,
            "times": told[kind]["times"],
            "kv_room_tokens": told[kind]["kv_room_tokens"],
        }
        for kind, weight in zip(KINDS, weights, strict=True)
    ]
    file = directory / "instances.json"
    key_hash = hashlib.sha256(KEY.encode()).hexdigest()
    file.write_text(
        json.dumps(
            {
                "model_name": "m",
                "router": name,
                "instances": instances,
                "api_key_hashes": [key_hash],
                "mean_output_tokens": MEAN_OUTPUT_TOKENS,
            }
        )
    )
    port = choose_port("127.0.0.1", wanted=0, kept=None)
    options = ["--instances", str(file), "--data-dir", str(directory), "--port", str(port)]
    with process("front", *options, "--request-timeout", "900", log=directory / "front.log"):
        url = f"http://127.0.0.1:{port}"
        wait_ready(url)
        return asyncio.run(
            drive(
                url,
                requests_of(arguments),
                rate_per_s=arguments.rate,
                seed=arguments.seed,
            )
        )


def runs_of(
    arguments: argparse.Namespace, told: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[str, tuple[float, ...]]]:
    """Routers and their weights, in the order they are tried."""
    for router in arguments.routers:
        if router != "weighted_round_robin":
            yield router, (1.0,) * len(KINDS)
            continue
        swept = arguments.weights or likely_weights(
            told,
            requests_of(arguments),
            rate_per_s=arguments.rate,
            seed=arguments.seed,
            count=arguments.sweep,
        )
        yield from ((router, weights) for weights in swept)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--rate", type=float, default=4.0, help="requests/s")
    parser.add_argument("--lengths", type=Path, metavar="FILE.csv", help="input_len,output_len")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sweep", type=int, default=3, help="how many weights, if not --weights")
    parser.add_argument("--weights", nargs="+", metavar="W,W,W", type=_weights)
    parser.add_argument("--keep-logs", type=Path, metavar="FOLDER", help="of all processes")
    parser.add_argument("--routers", nargs="+", default=ROUTERS, metavar="NAME")
    arguments = parser.parse_args(argv)
    with ExitStack() as stack:
        directory = arguments.keep_logs
        if directory is None:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        directory.mkdir(parents=True, exist_ok=True)
        checkpoint = directory / "m"
        sizes = TinySizes(num_layers=LAYERS, max_position_embeddings=CONTEXT_TOKENS)
        make_tiny_checkpoint(checkpoint, sizes=sizes, seed=1)
        urls = {}
        for kind, (slowness, room) in KINDS.items():
            emulation = directory / f"{kind}.json"
            emulation.write_text(emulation_of(slowness, room).model_dump_json())
            port = choose_port("127.0.0.1", wanted=0, kept=None)
            urls[kind] = f"http://127.0.0.1:{port}"
            stack.enter_context(
                process(
                    *("serve", "--checkpoint", str(checkpoint), "--model-name", "m"),
                    *("--emulate", str(emulation), "--port", str(port)),
                    *("--request-timeout", "900"),
                    log=directory / f"{kind}.log",
                )
            )
        for url in urls.values():
            wait_ready(url)
        with ThreadPoolExecutor() as pool:
            told = dict(zip(urls, pool.map(measured, urls.values()), strict=True))
        for kind in urls:
            print(
                f"{kind}: {told[kind]['times']}, room {told[kind]['kv_room_tokens']} tokens, "
                f"decode fit off by {told[kind]['fit']['decode']['median_error']:.1%}",
                flush=True,
            )
        found: dict[tuple[str, tuple[float, ...]], Outcome] = {}
        for router, weights in runs_of(arguments, told):
            outcome = run_router(
                router, weights, urls=urls, told=told, directory=directory, arguments=arguments
            )
            found[router, tuple(weights)] = outcome
            words = f"{router} {weights}" if router == "weighted_round_robin" else router
            print(
                f"{words}: {outcome.output_tokens_per_s:.0f} output tokens/s, spread "
                f"{outcome.finish_spread:.1%}, {dict(outcome.shares)}, {outcome.failed} failed",
                flush=True,
            )
    return _judged(found)


def _weights(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in text.split(","))


def _judged(found: Mapping[tuple[str, tuple[float, ...]], Outcome]) -> int:
    """0 if all that was measured is within the bounds."""
    ours = next((one for (name, _), one in found.items() if name == "load_aware"), None)
    if ours is None:
        return 0

    def ratio(router: str) -> float:
        rates = [one.output_tokens_per_s for (name, _), one in found.items() if name == router]
        return ours.output_tokens_per_s / max(rates) if rates else math.nan

    turns, weights = ratio("round_robin"), ratio("weighted_round_robin")
    print(
        f"load-aware: {turns:.2f} times round robin (wanted 1.3), {weights:.3f} of the best "
        f"weights (wanted 0.97), spread {ours.finish_spread:.1%} (wanted below 10 %)"
    )
    missed = turns < 1.3 or weights < 0.97 or ours.finish_spread >= 0.1 or ours.failed > 0
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
