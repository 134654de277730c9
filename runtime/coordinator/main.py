"""`python -m runtime coordinator`: one process that serves clients over the deployed plan."""

import asyncio
import logging
import os
import random
import secrets
import sys
import time
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from starlette.applications import Starlette

from planner.domain.cluster import COORDINATOR
from runtime.api.access import ApiKeys, PassedOnKeys
from runtime.coordinator.app import create_app
from runtime.coordinator.control_loop import Removed, follow_plan, report_forever
from runtime.coordinator.dispatcher import Dispatcher
from runtime.coordinator.emulated_sending import EmulatedSending
from runtime.coordinator.heap import bound_free_memory
from runtime.coordinator.instance_house import Surroundings
from runtime.coordinator.instance_service import Doorway, InstanceService
from runtime.coordinator.link_rounds import measure_links
from runtime.coordinator.message_loops import receive_forever, see_forever
from runtime.coordinator.metrics import NO_MODEL, metrics_page
from runtime.coordinator.options import Options, parse_options
from runtime.coordinator.plan_follower import PlanFollower
from runtime.coordinator.plan_store import PlanStore
from runtime.coordinator.private_doors import PrivateDoor, private_doors
from runtime.coordinator.reporter import build_report
from runtime.coordinator.request_stats import RequestStats
from runtime.coordinator.routing import Routing
from runtime.coordinator.shared_port import (
    choose_data_port,
    clients_url,
    shared_with,
    with_hosts,
)
from runtime.coordinator.stage_link import Sender
from runtime.coordinator.telemetry import NoTelemetry, telemetry
from runtime.coordinator.tracing import Tracer
from runtime.free_memory import give_back_free_memory
from runtime.front.relay import relay_client
from runtime.http_process import (
    CannotListen,
    HttpServer,
    first_end,
    hear_signals,
    listen,
    outlive,
    told_to_end,
)
from runtime.instances.asking import PROBE_TIMEOUT_S
from runtime.instances.command_lines import Door
from runtime.instances.pinned import instance_client
from runtime.link_measuring import LinkAnswers
from runtime.membership.data_address import AddressError, data_endpoint
from runtime.membership.hardware import detect_hardware
from runtime.membership.identity import DataDir, DataDirError
from runtime.membership.joining import Applicant, JoinRefused, join
from runtime.metrics_port import metrics_port
from runtime.protocol.addresses import bracketed
from runtime.protocol.control import AgentIdentity, CoordinatorReport, Role
from runtime.protocol.emulation import EmulatedNetwork, EmulationRefused, read_network
from runtime.protocol.join_tokens import given_token
from runtime.protocol.logs import UnknownFormat, begin_logging
from runtime.protocol.request_trace import RequestTrace
from runtime.protocol.weight_access import WeightAccess
from runtime.reaching import Reaching
from runtime.request_ids import RequestIds
from runtime.transport.async_zmq_transport import AsyncZmqTransport
from runtime.transport.keys import KeyFileError, KeyPair
from runtime.transport.zmq_transport import BindFailed
from runtime.web_client import BadServerAddress, WebClient, check_server

STATS_WINDOW_S = 10.0
TICK_S = 1.0
GIVE_BACK_INTERVAL_S = 60.0

logger = logging.getLogger(__name__)


_REMEDIABLE = (
    AddressError,
    BadServerAddress,
    BindFailed,
    CannotListen,
    DataDirError,
    EmulationRefused,
    JoinRefused,
    KeyFileError,
    NoTelemetry,
    Removed,
    UnknownFormat,
)


def main(argv: list[str]) -> int:
    """0 after SIGTERM, once its requests have ended, or SIGINT, at once; 2 with one line on stderr
    for what the caller must change."""
    options = parse_options(argv)
    options = replace(options, token=given_token(options.token, os.environ))
    bound_free_memory()
    try:
        begin_logging(
            "coordinator",
            level=os.environ.get("HELIX_LOG_LEVEL", "INFO").upper(),
            line_format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        )
        logging.getLogger("httpx").setLevel(logging.WARNING)
        check_server(options.server)
        network = None if options.emulate is None else read_network(options.emulate)
        data_dir = DataDir(options.data_dir)
        with data_dir.locked():
            asyncio.run(run(options, data_dir, network=network))
    except _REMEDIABLE as error:
        sys.stderr.write(f"coordinator: {error}\n")
        return 2
    return 0


async def run(options: Options, data_dir: DataDir, *, network: EmulatedNetwork | None) -> None:
    """Serve until a signal; `network` are the links to the stages, if they are emulated.

    Raises JoinRefused, Removed, and what binding raises.
    """
    with private_doors("stages", "pipelines") as (stages_door, pipelines_door):
        await _run(options, data_dir, network, stages_door, pipelines_door)


async def _run(
    options: Options,
    data_dir: DataDir,
    network: EmulatedNetwork | None,
    stages_door: PrivateDoor,
    pipelines_door: PrivateDoor,
) -> None:
    options = with_hosts(options)
    identity = data_dir.load_identity(fresh_uuid=str(uuid.uuid4()))
    curve_keys = KeyPair.load_or_create(data_dir.key_file)
    listener = listen(options.host, options.port)
    port: int = listener.getsockname()[1]
    data_port, shares_port = choose_data_port(options, clients_port=port, kept=identity.data_port)
    stages_url = data_endpoint(options.data_host, data_port)
    transport = AsyncZmqTransport(
        name=COORDINATOR,
        bind=stages_door.zmq_endpoint if shares_port else stages_url,
        keys=curve_keys,
        security=options.data_security,
    )
    identity = identity.model_copy(update={"data_port": data_port})
    data_dir.save_identity(identity)

    news = asyncio.Event()
    stats = RequestStats(window_s=STATS_WINDOW_S, clock=time.monotonic)
    told_of_traces = telemetry()
    tracer = Tracer(
        traces_per_s=options.traces_per_s,
        clock=time.monotonic,
        unix_time=time.time,
        telemetry=told_of_traces,
    )
    dispatcher = Dispatcher(
        transport=_sender(transport, network),
        stats=stats,
        clock=time.monotonic,
        new_request_id=lambda: secrets.randbits(63),
        request_timeout_s=options.request_timeout_s,
        migrate_after_s=options.migrate_after_s,
        tracer=tracer,
        on_stage_change=news.set,
    )
    api_keys = ApiKeys(spending=stats.spending, proxies=options.trusted_proxies)
    own_key = secrets.token_urlsafe(32)
    own_listener = pipelines_door.listen()
    asking = instance_client(timeout=PROBE_TIMEOUT_S)
    relaying = relay_client(options.request_timeout_s)
    instances = InstanceService(
        Surroundings(
            keys=api_keys,
            stats=stats,
            asking=asking,
            relaying=relaying,
            pipelines=Door(
                url=pipelines_door.url,
                socket_path=pipelines_door.path,
                model="",
                api_key=own_key,
                lists_model=False,
                has_metrics=False,
                hears_asker=True,
            ),
            is_shut=lambda node: instances.is_paused or node in instances.shut_nodes,
            tracer=tracer,
        )
    )

    def report(traces: tuple[RequestTrace, ...] = ()) -> CoordinatorReport:
        return instances.reported(
            build_report(
                dispatcher=dispatcher,
                stats=stats,
                follower=follower,
                now=time.monotonic(),
                # emulated links say nothing of those that are there
                links=transport.link_stats() if network is None else {},
                traces=traces,
                keys=api_keys.spent(),
            )
        )

    def metrics() -> bytes:
        return metrics_page(report(), stats, model_name=_model_served(dispatcher, instances))

    def weights() -> WeightAccess:
        """By the credential that this process has by now."""
        member = data_dir.load_identity(fresh_uuid=identity.node_uuid).membership
        return WeightAccess(
            directory=str(data_dir.weights),
            site=options.server if member is not None else "",
            credential="" if member is None else member.credential,
            ca=str(options.ca or ""),
        )

    follower = PlanFollower(
        dispatcher=dispatcher,
        keys=api_keys,
        store=PlanStore(options.data_dir / "plan.json"),
        set_peers=transport.set_peers,
        routing=Routing(
            name=options.router,
            rng=random.Random(),  # noqa: S311 - balances load, guards nothing
            clock=time.monotonic,
        ),
        serve_instances=instances.serve,
        weights=weights,
    )
    await follower.apply_stored()

    def may_measure() -> bool:
        is_idle = not dispatcher.requests_here and not instances.requests_here
        return options.measure_links and network is None and is_idle

    link_answers = LinkAnswers(may_measure=may_measure)
    server = HttpServer(
        RequestIds(
            Doorway(_pipelines_face(dispatcher, api_keys, metrics), instances),
            tells_traces=told_of_traces is not None,
        ),
        protocol=shared_with(stages_door, link_answers) if shares_port else None,
    )
    own_server = HttpServer(
        RequestIds(
            _pipelines_face(dispatcher, PassedOnKeys(own_key), metrics),
            tells_traces=told_of_traces is not None,
        )
    )
    applicant = Applicant(
        role=Role.COORDINATOR,
        name=options.name,
        region=options.region,
        join_token=options.token,
        announcement=AgentIdentity(
            hardware=detect_hardware(memory_budget_bytes=None, relative_speed=1.0, gpus=()),
            data_endpoint=data_endpoint(options.data_host, data_port, options.advertise),
            data_public_key=curve_keys.public_key,
            http_url=clients_url(options, port),
        ),
    )
    told = applicant.announcement
    logger.info("listening on http://%s:%d and %s", bracketed(options.host), port, stages_url)
    logger.info("clients reach it at %s, stages at %s", told.http_url, told.data_endpoint)

    async def control() -> None:
        rng = random.Random()  # noqa: S311 - jitter of retries
        reaching = Reaching(
            own_endpoint=told.data_endpoint,
            on_change=news.set,
            may_measure=may_measure,
            answers=link_answers if shares_port else None,
        )
        reaching.note_listening(True)
        async with WebClient(options.server, ca=options.ca, rng=rng) as web:
            await join(web, data_dir, identity, applicant, rng=rng)
            await first_end(
                follow_plan(web, follower),
                report_forever(
                    web,
                    follower,
                    announcement=applicant.announcement,
                    make_report=lambda: report(tracer.waiting()),
                    on_delivered=lambda report: tracer.delivered(report.traces),
                    reaching=reaching,
                    news=news,
                ),
                reaching.run(),
            )

    def close() -> None:
        instances.close()
        dispatcher.close()

    serving = asyncio.create_task(server.serve(sockets=[listener]))
    own_serving = asyncio.create_task(own_server.serve(sockets=[own_listener]))
    try:
        async with metrics_port(options.metrics_port, metrics):
            await first_end(
                told_to_end(
                    hear_signals(),
                    close=close,
                    requests=lambda: dispatcher.requests_here + instances.requests_here,
                    grace_s=options.shutdown_grace_s,
                ),
                control(),
                receive_forever(transport, dispatcher),
                see_forever(transport, dispatcher),
                _tick(dispatcher, follower),
                _give_back_forever(),
                instances.tick(),
                *_measuring(options, transport, dispatcher),
                outlive(serving),
                outlive(own_serving),
            )
    finally:
        dispatcher.stop()
        instances.cut()
        server.should_exit = own_server.should_exit = True
        await asyncio.gather(serving, own_serving)
        await instances.stop()
        await asking.aclose()
        await relaying.aclose()
        if told_of_traces is not None:
            await asyncio.to_thread(told_of_traces.close)
        transport.close()


def _model_served(dispatcher: Dispatcher, instances: InstanceService) -> str:
    house, serving = instances.serving, dispatcher.serving
    if house is not None:
        return house.plan.model_name
    return NO_MODEL if serving is None else serving.plan.model_name


def _pipelines_face(
    dispatcher: Dispatcher, keys: ApiKeys, metrics: Callable[[], bytes]
) -> Starlette:
    return create_app(
        dispatcher=dispatcher,
        keys=keys,
        unix_time=time.time,
        new_answer_id=lambda: secrets.token_hex(12),
        new_seed=lambda: secrets.randbits(64),
        metrics=metrics,
    )


def _measuring(
    options: Options, transport: AsyncZmqTransport, dispatcher: Dispatcher
) -> list[Coroutine[Any, Any, None]]:
    if not options.measure_links:
        return []
    return [measure_links(transport, dispatcher, clock=time.monotonic)]


def _sender(transport: AsyncZmqTransport, network: EmulatedNetwork | None) -> Sender:
    """Sends at once, or as late as the links of `network` would."""
    if network is None:
        return transport
    logger.warning("what is sent to the stages is delayed: their links are emulated")
    return EmulatedSending(
        transport,
        network,
        clock=time.monotonic,
        call_at=asyncio.get_running_loop().call_at,
    )


async def _tick(dispatcher: Dispatcher, follower: PlanFollower) -> None:
    while True:
        await asyncio.sleep(TICK_S)
        dispatcher.expire()
        follower.follow_peers()
        await follower.store_again()


async def _give_back_forever() -> None:
    while True:
        await asyncio.sleep(GIVE_BACK_INTERVAL_S)
        await asyncio.to_thread(give_back_free_memory)
