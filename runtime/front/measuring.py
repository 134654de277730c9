"""`python -m runtime measure-instance`: what an instance does, for the file of a front.

Prints JSON: `times` (p1..p8) and `kv_room_tokens` as they stand in that file, and how sure they
are. Measure it while it has no other requests. Exit status 2: it could not be measured.
"""

import argparse
import asyncio
import json
import os
import random
import sys
import time
from dataclasses import asdict
from typing import Any

import httpx
from pydantic import ValidationError

from planner.latency_fit import CannotFit, fit_latency_model
from planner.latency_model import Fit
from runtime.command_numbers import positive_int
from runtime.front.relay import InstanceTarget
from runtime.front.sweep import ApiSweep, sweep_instance
from runtime.front.target import InstanceFailed, InstanceFull, Refused
from runtime.instances.asking import AskedInstance
from runtime.instances.command_lines import InstanceAddress
from runtime.instances.engine_load import EngineLoad
from runtime.protocol.instances import UrlInstance

_TIMEOUT_S = 300.0


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
        sweep = await sweep_instance(
            InstanceTarget(http, address),
            batches=arguments.batches,
            lengths=arguments.lengths,
            output_tokens=arguments.output_tokens,
            repeats=arguments.repeats,
            clock=time.perf_counter,
            rng=random.SystemRandom(),
        )
        return sweep, await AskedInstance(http, address).load()


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
