"""`python -m runtime front`: one endpoint over the whole-model instances of a file.

Those of its servers that are ours to start are started and watched here, and drained at the end.
Exit status 2: called wrongly.
"""

import argparse
import asyncio
import logging
import os
import random
import secrets
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
from starlette.applications import Starlette

from planner.routers.answer_length import AnswerLength, DrawnLength, QuantileLength
from planner.routers.instance_choice import INSTANCE_ROUTER_NAMES, make_instance_router
from runtime.api.access import ApiKeys
from runtime.command_numbers import port_number, positive_seconds
from runtime.command_options import add_options, add_serving_options, option
from runtime.front.answer import Proxy, Waits
from runtime.front.backend import FrontBackend, metrics_page
from runtime.front.balance import Balance
from runtime.front.target import InstanceTarget, relay_client
from runtime.http_process import (
    Ending,
    HttpServer,
    hear_signals,
    listen,
    serve_until_told,
    taken,
)
from runtime.instances.command_lines import address_of, launch_of
from runtime.instances.health import Patience
from runtime.instances.instance import Instance, SupervisedInstance
from runtime.instances.process import ServerProcess
from runtime.metrics_port import metrics_route
from runtime.openai_app import assemble
from runtime.protocol.complaints import StartRefused
from runtime.protocol.instances import (
    InstanceSet,
    InstanceSpec,
    UrlInstance,
    read_instances,
)
from runtime.protocol.logs import begin_logging

_PREDICTORS = ("drawn", "quantile")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The command line."""

    instances: Path = option(
        required=True,
        type=Path,
        metavar="FILE.json",
        help="what there is (InstanceSet in runtime/protocol/instances.py)",
    )
    data_dir: Path = option(required=True, type=Path, help="keeps the logs of those started here")
    host: str = option(default="127.0.0.1", help="address for clients (default %(default)s)")
    port: int = option(
        type=port_number, default=8100, help="port for clients (default %(default)s)"
    )
    router: str | None = option(choices=INSTANCE_ROUTER_NAMES, help="instead of the file's")
    lengths: str = option(
        choices=_PREDICTORS,
        default="quantile",
        help="how long answers are expected to be: drawn from those seen (the paper's), or a "
        "quantile of them, which spreads work more evenly (default %(default)s)",
    )
    quantile: float = option(
        type=float, default=0.6, help="of --lengths quantile (default %(default)g)"
    )
    answer_timeout_s: float = option(
        flag="--answer-timeout",
        type=positive_seconds,
        default=900.0,
        help="seconds within which an answer that does not stream must be whole (default "
        "%(default)g)",
    )
    request_timeout_s: float
    shutdown_grace_s: float


def main(argv: list[str]) -> int:
    """0 after SIGTERM or SIGINT."""
    options = parse_options(argv)
    try:
        begin_logging("front")
        wanted = read_instances(options.instances)
        options.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        asyncio.run(run(options, wanted))
    except (StartRefused, OSError, ValueError) as error:
        sys.stderr.write(f"front: {error}\n")
        return 2
    return 0


async def run(options: Options, wanted: InstanceSet) -> None:
    """Serve until a signal, then drain. Raises CannotListen."""
    async with relay_client(options.request_timeout_s) as http:
        targets = _targets(wanted, http)
        instances: dict[str, Instance] = {}
        balance = _balance(options, wanted, instances)
        for spec in wanted.instances:
            instances[spec.name] = _instance(
                spec,
                target=targets[spec.name],
                model_name=wanted.model_name,
                directory=options.data_dir,
                balance=balance,
            )
        proxy = Proxy(
            model_name=wanted.model_name,
            targets={**targets},
            balance=balance,
            lengths=_lengths(options, first_tokens=wanted.mean_output_tokens),
            waits=Waits(answer_s=options.answer_timeout_s, token_s=options.request_timeout_s),
        )
        keys = ApiKeys(wanted.api_key_hashes)
        backend = FrontBackend(proxy, instances, keys)
        app = assemble(
            lambda: backend,
            keys=keys,
            routes=[metrics_route(lambda: metrics_page(balance, instances))],
        )
        await _serve(options, app, backend)


async def _serve(options: Options, app: Starlette, backend: FrontBackend) -> None:
    balance = backend.balance
    listener = listen(options.host, options.port)
    logger.info("listening on http://%s:%d", options.host, listener.getsockname()[1])
    signals = hear_signals()
    backend.begin()

    async def cut() -> None:
        balance.close()
        balance.cut.set()
        hurrying = asyncio.create_task(_hurry(signals, backend.instances))
        await _stop(backend.instances)
        hurrying.cancel()
        await backend.close()

    await serve_until_told(
        HttpServer(app),
        listener,
        signals=signals,
        ending=Ending(
            requests=lambda: balance.here,
            close=balance.close,
            cut=cut,
            grace_s=options.shutdown_grace_s,
        ),
    )


def _targets(wanted: InstanceSet, http: httpx.AsyncClient) -> dict[str, InstanceTarget]:
    return {
        spec.name: InstanceTarget(
            http,
            address_of(
                spec,
                model_name=wanted.model_name,
                api_key=secrets.token_urlsafe(32),
                environment=os.environ,
            ),
        )
        for spec in wanted.instances
    }


def _balance(options: Options, wanted: InstanceSet, instances: Mapping[str, Instance]) -> Balance:
    return Balance(
        instances,
        router=make_instance_router(
            options.router or wanted.router,
            speeds={spec.name: spec.speed for spec in wanted.instances},
            weights={spec.name: spec.weight for spec in wanted.instances},
            theta=wanted.theta,
        ),
        clock=time.monotonic,
        most_requests={spec.name: spec.most_requests for spec in wanted.instances},
    )


async def _stop(instances: Mapping[str, Instance]) -> None:
    """All of them, also if one cannot be."""
    outcomes = await asyncio.gather(
        *(each.stop() for each in instances.values()), return_exceptions=True
    )
    for name, outcome in zip(instances, outcomes, strict=True):
        if isinstance(outcome, Exception):
            logger.error("instance %s could not be stopped", name, exc_info=outcome)


async def _hurry(signals: "asyncio.Queue[int]", instances: Mapping[str, Instance]) -> None:
    await taken(signals)
    for each in instances.values():
        each.hurry()


def _instance(
    spec: InstanceSpec,
    *,
    target: InstanceTarget,
    model_name: str,
    directory: Path,
    balance: Balance,
) -> Instance:
    if isinstance(spec, UrlInstance):
        return Instance(
            spec.name,
            probed=target,
            clock=time.monotonic,
            patience=Patience(),
        )
    return SupervisedInstance(
        spec.name,
        asked=target,
        launch=launch_of(spec, model_name=model_name, api_key=target.address.api_key),
        process=ServerProcess(directory, name=spec.name),
        clock=time.monotonic,
        patience=Patience(start_s=spec.start_patience_s, drain_s=spec.drain_patience_s),
        requests_under_way=lambda: balance.under_way_at(spec.name),
        produced_s=lambda: balance.produced_s(spec.name),
    )


def _lengths(options: Options, *, first_tokens: int) -> AnswerLength:
    if options.lengths == "quantile":
        return QuantileLength(first_tokens=first_tokens, quantile=options.quantile)
    return DrawnLength(first_tokens=first_tokens, rng=random.SystemRandom())


def parse_options(argv: list[str]) -> Options:
    """Exits with status 2 and a usage message when `argv` is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m runtime front",
        description="One OpenAI-compatible endpoint over whole-model instances.",
    )
    add_options(parser, Options)
    add_serving_options(parser, late="an instance that streams has failed", grace_s=30.0)
    return Options(**vars(parser.parse_args(argv)))
