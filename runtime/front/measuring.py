"""`python -m runtime measure-instance`: what an instance does, for the file of a front.

Prints JSON: `times` (p1..p8) and `kv_room_tokens` as they stand in that file, and how sure they
are. Measure it while it has no other requests. Exit status 2: it could not be measured.

Batch sizes times prompt lengths (Xiong et al. §3.1), each batch sent at once. A prefill lasts until
the last of its prompts has its first token, a decode step as long as a token takes while all of
them write. What HTTP costs is in it, as it is for clients. Other traffic would be, too.
"""

import argparse
import asyncio
import json
import os
import random
import string
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from typing import Any

import httpx
from pydantic import ValidationError

from planner.latency_fit import CannotFit, Timing, fit_latency_model
from planner.latency_model import Fit
from runtime.api.events import usage_of
from runtime.command_numbers import positive_int
from runtime.front.asked import FIRST_CHARS_PER_TOKEN, Asked, read_asked
from runtime.front.target import (
    InstanceFailed,
    InstanceFull,
    InstanceTarget,
    Refused,
    Target,
    TooSlow,
)
from runtime.instances.engine_load import EngineLoad
from runtime.protocol.instance_orders import InstanceAddress
from runtime.protocol.instances import UrlInstance

_PATIENCE_S = 300.0  # of one token's answer
_WORD_CHARS = 5
_LEAST_GAPS = 2  # of one request while all write; else its step is not told
_TIMEOUT_S = 300.0
_ANY_MODEL = "any"  # the instance's own name of it is sent


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSweep:
    """What was timed; `tokens` are as the instance counted them."""

    prefills: tuple[Timing, ...]
    decodes: tuple[Timing, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """When each token of one answer came, and what the instance counted."""

    began_s: float
    tokens_s: tuple[float, ...]
    tokens_per_event: float


async def sweep_instance(
    instance: Target,
    *,
    batches: Sequence[int],
    lengths: Sequence[int],
    output_tokens: int,
    repeats: int,
    clock: Callable[[], float],
    rng: random.Random,
) -> ApiSweep:
    """Every batch size with every length, the least of `repeats`. Raises InstanceFailed,
    InstanceFull, Refused."""
    chars_per_token = await _chars_per_token(instance, rng)
    prefills, decodes = [], []
    for length in lengths:
        chars = round(length * chars_per_token)
        counted = await _counted(instance, _text(rng, chars))
        for batch in batches:
            prefill_s, decode_s = [], []
            for _ in range(repeats):
                written = await asyncio.gather(
                    *(
                        _write(instance, _text(rng, chars), output_tokens, clock)
                        for _ in range(batch)
                    )
                )
                prefill_s.append(_prefill_s(written))
                decode_s += _step_s(written)
            prefills.append(Timing(batch=batch, tokens=counted, seconds=min(prefill_s)))
            if decode_s:
                context = counted + output_tokens // 2
                decodes.append(Timing(batch=batch, tokens=context, seconds=min(decode_s)))
    return ApiSweep(prefills=tuple(prefills), decodes=tuple(decodes))


def _prefill_s(written: Sequence[_Written]) -> float:
    began_s = min(one.began_s for one in written)
    return max(one.tokens_s[0] for one in written) - began_s


def _step_s(written: Sequence[_Written]) -> list[float]:
    """Seconds of a token while all write, by each of them that wrote enough meanwhile."""
    from_s = max(one.tokens_s[0] for one in written)
    until_s = min(one.tokens_s[-1] for one in written)
    steps = []
    for one in written:
        times = [at_s for at_s in one.tokens_s if from_s <= at_s <= until_s]
        if len(times) > _LEAST_GAPS:
            steps.append((times[-1] - times[0]) / (len(times) - 1) / one.tokens_per_event)
    return [sum(steps) / len(steps)] if steps else []


async def _write(
    instance: Target, prompt: str, max_tokens: int, clock: Callable[[], float]
) -> _Written:
    """One answer, timed. Raises InstanceFailed where nothing was written."""
    began_s, times_s, output = clock(), [], None
    asked = _asked(prompt, max_tokens=max_tokens, stream=True)
    async with aclosing(instance.stream(asked, passed_on={})) as events:
        async for event in events:
            if event.tokens:
                times_s.append(clock())
            if event.usage is not None:
                output = event.usage[1]
    if not times_s:
        raise InstanceFailed("it wrote nothing that could be timed; give it another prompt length")
    per_event = max(1.0, (output or len(times_s)) / len(times_s))
    return _Written(began_s=began_s, tokens_s=tuple(times_s), tokens_per_event=per_event)


async def _counted(instance: Target, prompt: str) -> int:
    """Its tokens, as the instance counts them."""
    asked = _asked(prompt, max_tokens=1, stream=False)
    try:
        usage = usage_of(await instance.whole(asked, patience_s=_PATIENCE_S, passed_on={}))
    except TooSlow as error:
        raise InstanceFailed(str(error)) from error
    if usage is None:
        raise InstanceFailed("it reports no usage, so that the length of its prompts is not known")
    return usage[0]


async def _chars_per_token(instance: Target, rng: random.Random) -> float:
    text = _text(rng, round(64 * FIRST_CHARS_PER_TOKEN))
    return len(text) / max(1, await _counted(instance, text))


def _text(rng: random.Random, chars: int) -> str:
    """Words that were never sent before, so that no prefix of them is cached."""
    words = max(1, round(chars / (_WORD_CHARS + 1)))
    letters = rng.choices(string.ascii_lowercase, k=words * _WORD_CHARS)
    return " ".join(
        "".join(letters[at : at + _WORD_CHARS]) for at in range(0, len(letters), _WORD_CHARS)
    )


def _asked(prompt: str, *, max_tokens: int, stream: bool) -> Asked:
    body = {"prompt": prompt, "max_tokens": max_tokens, "temperature": 1.0, "stream": stream}
    content = json.dumps({**body, "model": _ANY_MODEL}).encode()
    return read_asked("/v1/completions", content, model_name=_ANY_MODEL)


def main(argv: list[str]) -> int:
    arguments = _parser().parse_args(argv)
    address = InstanceAddress(
        url=arguments.url.rstrip("/").removesuffix("/v1"),
        model=arguments.model,
        api_key=os.environ.get(arguments.api_key_env, ""),
        tells_usage=arguments.stream_usage,
    )
    try:
        sweep, load = asyncio.run(_measure(address, arguments))
        told = document(sweep, load)
    except (CannotFit, InstanceFailed, InstanceFull, Refused) as error:
        said = f" {error.content[:300]!r}" if isinstance(error, Refused) else ""
        sys.stderr.write(f"cannot measure {address.url}: {error}{said}\n")
        return 2
    print(json.dumps(told, indent=2))
    return 0


def document(sweep: ApiSweep, load: EngineLoad) -> dict[str, Any]:
    """What is printed. Raises CannotFit."""
    model = fit_latency_model(sweep.prefills, sweep.decodes)
    told: dict[str, Any] = {
        "times": {"prefill": model.prefill.parameters, "decode": model.decode.parameters}
    }
    if load.kv_room_tokens is not None:
        told["kv_room_tokens"] = load.kv_room_tokens
    told["fit"] = {"prefill": _sure(model.prefill), "decode": _sure(model.decode)}
    told["measured"] = {
        "prefills": [asdict(one) for one in sweep.prefills],
        "decodes": [asdict(one) for one in sweep.decodes],
    }
    return told


async def _measure(
    address: InstanceAddress, arguments: argparse.Namespace
) -> tuple[ApiSweep, EngineLoad]:
    async with httpx.AsyncClient(timeout=_TIMEOUT_S, trust_env=False) as http:
        instance = InstanceTarget(http, address)
        sweep = await sweep_instance(
            instance,
            batches=arguments.batches,
            lengths=arguments.lengths,
            output_tokens=arguments.output_tokens,
            repeats=arguments.repeats,
            clock=time.perf_counter,
            rng=random.SystemRandom(),
        )
        return sweep, await instance.load()


def _address(text: str) -> str:
    try:
        return str(UrlInstance(backend="url", name="measured", url=text, model="any").url)
    except ValidationError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no address; write http(s)://HOST or http(s)://HOST:PORT"
        ) from error


def _sure(fit: Fit) -> dict[str, Any]:
    return {
        "standard_errors": fit.standard_errors,
        "median_error": fit.median_error,
        "worst_error": fit.worst_error,
        "points": fit.points,
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m runtime measure-instance", description=__doc__.split("\n")[0]
    )
    add = parser.add_argument
    add("--url", required=True, type=_address, help="of an OpenAI-compatible server")
    add("--model", required=True, help="its name there")
    add("--api-key-env", default="HELIX_API_KEY", help="variable with its key (%(default)s)")
    add("--batches", type=positive_int, nargs="+", default=[1, 2, 4, 8, 16])
    add(
        "--lengths",
        type=positive_int,
        nargs="+",
        default=[64, 256, 1024],
        help="of prompts, in tokens",
    )
    add(
        "--output-tokens",
        type=positive_int,
        default=64,
        help="of each answer; enough for the first to write still when the last prompt of a batch "
        "is through (default %(default)s)",
    )
    add("--repeats", type=positive_int, default=2, help="of each batch, the least counts")
    add(
        "--stream-usage",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="ask streams for token counts, which not every server allows",
    )
    return parser
