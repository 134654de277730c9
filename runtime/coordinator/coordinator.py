"""One coordinator: clients and helixweb on one side, stages and instances on the other.

It keeps in step with helixweb, and goes on alone while helixweb is away.
"""

import asyncio
import logging
import random
import secrets
import time
from collections.abc import Callable, Coroutine
from typing import Any

from runtime.api.access import ApiKeys
from runtime.coordinator.app import PipelineBackend
from runtime.coordinator.dispatcher import Dispatcher
from runtime.coordinator.instance_group import SharedParts
from runtime.coordinator.instance_service import InstanceService
from runtime.coordinator.link_rounds import measure_links
from runtime.coordinator.local_pipelines import LocalPipelines
from runtime.coordinator.message_loops import message_loops
from runtime.coordinator.metrics import NO_MODEL, metrics_page
from runtime.coordinator.options import Options
from runtime.coordinator.place import Place
from runtime.coordinator.plan_follower import PlanFollower
from runtime.coordinator.reporter import build_report
from runtime.coordinator.request_stats import RequestStats
from runtime.coordinator.serving import Routing
from runtime.coordinator.shared_port import shared_with
from runtime.coordinator.telemetry import Telemetry
from runtime.coordinator.tracing import Tracer
from runtime.engine.emulated_links import EmulatedSending
from runtime.free_memory import give_back_free_memory
from runtime.front.target import relay_client
from runtime.http_process import Ending, HttpServer, hear_signals, serve_until_told
from runtime.link_measuring import LinkAnswers
from runtime.membership.identity import Applicant, DataDir, join
from runtime.metrics_port import metrics_port, metrics_route
from runtime.openai_app import Backend, assemble
from runtime.protocol.complaints import StartRefused
from runtime.protocol.control import AgentIdentity, CoordinatorDesired, CoordinatorReport, Role
from runtime.protocol.emulation import EmulatedNetwork
from runtime.protocol.request_trace import RequestTrace
from runtime.protocol.weight_access import WeightAccess
from runtime.reaching import Reaching
from runtime.tasks import first_end, within
from runtime.web_client import ServerRefused, WebClient, WebError

REPORT_INTERVAL_S = 1.0

logger = logging.getLogger(__name__)
STATS_WINDOW_S = 10.0
GIVE_BACK_INTERVAL_S = 60.0


class Removed(StartRefused):
    """helixweb does not know this coordinator any more."""


async def follow_plan(web: WebClient, follower: PlanFollower) -> None:
    """Apply every desired state as it is pushed, forever. Raises Removed."""
    try:
        async for desired in web.desired_states(CoordinatorDesired):
            await follower.apply(desired)
    except ServerRefused as error:
        raise _removed(error) from error


async def report_forever(
    web: WebClient,
    follower: PlanFollower,
    *,
    announcement: AgentIdentity,
    make_report: Callable[[], CoordinatorReport],
    on_delivered: Callable[[CoordinatorReport], None] = lambda _: None,
    reaching: Reaching,
    news: asyncio.Event,
) -> None:
    """Report about once a second; a reply of another generation means a push was lost.

    `on_delivered` gets each report that was answered, `reaching` what to try. `news` is set when
    a stage was lost or came back, and sends the next report at once.

    Whenever helixweb answers again, this process announces where it listens: helixweb may have been
    away when that changed. Raises Removed.
    """
    in_step = False
    was_away = False
    while True:
        news.clear()  # before what may fail, or the wait below would return at once
        try:
            if not in_step:
                await web.announce(announcement)
                in_step = True
                logger.info("helixweb answers")
            report = make_report().model_copy(update={"reach": reaching.state})
            reply = await web.report(report)
            on_delivered(report)
            reaching.want(reply.to_reach, reply.to_measure)
            # reports go on while a plan is applied, which may wait for a tokenizer from a hub
            if reply.generation != follower.generation and not follower.is_applying:
                await follower.apply(await web.coordinator_desired())
            was_away = False
        except WebError as error:
            if isinstance(error, ServerRefused) and error.is_unknown:
                raise _removed(error) from error
            if not was_away:
                logger.warning("helixweb: %s; serving goes on without it", error)
            in_step, was_away = False, True
        await within(REPORT_INTERVAL_S, news.wait())


def _removed(error: ServerRefused) -> Removed:
    return Removed(
        f"helixweb does not know this coordinator any more ({error}); to join again, delete its "
        "data directory and use a fresh join token"
    )


class Coordinator:
    """Owns all parts of a coordinator's process; `main` makes it.

    `serve` runs it. Make it within the event loop that it will run in.
    """

    def __init__(
        self,
        options: Options,
        place: Place,
        data_dir: DataDir,
        *,
        network: EmulatedNetwork | None,
        telemetry: Telemetry | None,
    ) -> None:
        """`network`: the links to the stages, if they are emulated; `telemetry` hears of traces."""
        self._options = options
        self._place = place
        self._data_dir = data_dir
        self._network = network
        self._news = asyncio.Event()
        self._stats = RequestStats(window_s=STATS_WINDOW_S, clock=time.monotonic)
        self._keys = ApiKeys(spending=self._stats.spending, proxies=options.trusted_proxies)
        self._tracer = Tracer(
            traces_per_s=options.traces_per_s,
            clock=time.monotonic,
            unix_time=time.time,
            tell=None if telemetry is None else telemetry.tell,
        )
        self._sending = (
            place.transport if network is None else EmulatedSending(place.transport, network)
        )
        self._dispatcher = self._make_dispatcher()
        self._pipelines = PipelineBackend(dispatcher=self._dispatcher)
        self._http = relay_client(options.request_timeout_s)  # to instances
        self._instances = InstanceService(
            SharedParts(
                dispatcher=self._dispatcher,
                http=self._http,
                token_timeout_s=options.request_timeout_s,
                pipelines=LocalPipelines(self._pipelines),
            )
        )
        self._follower = self._make_follower()
        self._link_answers = LinkAnswers(may_measure=self._may_measure)
        app = assemble(
            self._backend,
            keys=self._keys,
            routes=[metrics_route(self.metrics), *self._pipelines.routes],
            tells_traces=telemetry is not None,
        )
        shared = shared_with(place.inner, self._link_answers) if place.shares_port else None
        self._server = HttpServer(app, protocol=shared)

    async def serve(self) -> None:
        """Until a signal. Raises JoinRefused, Removed."""
        await self._follower.apply_stored()
        try:
            async with metrics_port(self._options.metrics_port, self.metrics):
                await serve_until_told(
                    self._server,
                    self._place.listener,
                    *self._works(),
                    signals=hear_signals(),
                    ending=Ending(
                        requests=self._requests_here,
                        close=self._close,
                        cut=self._cut,
                        grace_s=self._options.shutdown_grace_s,
                    ),
                )
        finally:
            await self._instances.stop()
            await self._http.aclose()
            self._sending.close()

    def report(self, traces: tuple[RequestTrace, ...] = ()) -> CoordinatorReport:
        """What the site gets as a report now."""
        transport = self._place.transport
        return build_report(
            dispatcher=self._dispatcher,
            instances=self._instances,
            stats=self._stats,
            follower=self._follower,
            now=time.monotonic(),
            # emulated links say nothing of those that are there
            links=transport.link_stats() if self._network is None else {},
            traces=traces,
            keys=self._keys.spent(),
        )

    def metrics(self) -> bytes:
        """The page for Prometheus."""
        group, serving = self._instances.serving, self._dispatcher.serving
        served = group or serving
        name = NO_MODEL if served is None else served.plan.model_name
        return metrics_page(self.report(), self._stats, model_name=name)

    def _backend(self) -> Backend:
        return self._instances.serving or self._pipelines

    def _make_dispatcher(self) -> Dispatcher:
        return Dispatcher(
            transport=self._sending,
            stats=self._stats,
            clock=time.monotonic,
            new_request_id=lambda: secrets.randbits(63),
            request_timeout_s=self._options.request_timeout_s,
            migrate_after_s=self._options.migrate_after_s,
            tracer=self._tracer,
            on_stage_change=self._news.set,
        )

    def _make_follower(self) -> PlanFollower:
        return PlanFollower(
            dispatcher=self._dispatcher,
            keys=self._keys,
            data_dir=self._data_dir,
            set_peers=self._place.transport.set_peers,
            routing=Routing(
                name=self._options.router,
                rng=random.Random(),  # noqa: S311 - balances load, guards nothing
                clock=time.monotonic,
            ),
            serve_instances=self._instances.serve,
            weights=self._weights,
        )

    def _weights(self) -> WeightAccess:
        """By the credential that this process has by now."""
        node_uuid = self._place.identity.node_uuid
        member = self._data_dir.load_identity(fresh_uuid=node_uuid).membership
        return WeightAccess(
            directory=str(self._data_dir.weights),
            site=self._options.server if member is not None else "",
            credential="" if member is None else member.credential,
            ca=str(self._options.ca or ""),
        )

    def _may_measure(self) -> bool:
        return self._options.measure_links and self._network is None and not self._requests_here()

    def _requests_here(self) -> int:
        return self._dispatcher.requests_here + self._instances.requests_here

    def _works(self) -> list[Coroutine[Any, Any, None]]:
        works = [
            *message_loops(self._dispatcher, self._place.transport),
            self._follower.run(),
            self._instances.tick(),
            self._control(),
            _give_back_forever(),
        ]
        if self._options.measure_links:
            works.append(
                measure_links(self._place.transport, self._dispatcher, clock=time.monotonic)
            )
        return works

    async def _control(self) -> None:
        options, announcement = self._options, self._place.announcement
        applicant = Applicant(
            role=Role.COORDINATOR,
            name=options.name,
            region=options.region,
            join_token=options.token,
            announcement=announcement,
        )
        rng = random.Random()  # noqa: S311 - jitter of retries
        reaching = Reaching(
            own_endpoint=announcement.data_endpoint,
            on_change=self._news.set,
            may_measure=self._may_measure,
            answers=self._link_answers if self._place.shares_port else None,
        )
        reaching.note_listening(True)
        async with WebClient(options.server, ca=options.ca, rng=rng) as web:
            await join(web, self._data_dir, self._place.identity, applicant, rng=rng)
            await first_end(
                follow_plan(web, self._follower),
                report_forever(
                    web,
                    self._follower,
                    announcement=announcement,
                    make_report=lambda: self.report(self._tracer.waiting()),
                    on_delivered=lambda report: self._tracer.delivered(report.traces),
                    reaching=reaching,
                    news=self._news,
                ),
                reaching.run(),
            )

    def _close(self) -> None:
        self._instances.close()
        self._dispatcher.close()

    async def _cut(self) -> None:
        self._dispatcher.stop()
        self._instances.cut()


async def _give_back_forever() -> None:
    while True:
        await asyncio.sleep(GIVE_BACK_INTERVAL_S)
        await asyncio.to_thread(give_back_free_memory)
