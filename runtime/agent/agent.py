"""The agent's life: hear what is wanted, make it so, tell what is. Read `run` first.

helixweb may be away at any time: the stage runs on, and every call is tried again later.
"""

import asyncio
import logging
import random
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

from runtime.agent.checkpoint_looks import CheckpointLooks
from runtime.agent.instance_specs import InstanceSettings
from runtime.agent.instances import InstanceManager, goes_on, with_instances
from runtime.agent.metrics import metrics_page
from runtime.agent.node_log import NodeLog, tell_log
from runtime.agent.profiling import Profiling, Traffic, node_traffic
from runtime.agent.reconcile import (
    AddGeneration,
    KillStage,
    StartStage,
    look_again_at_s,
    next_action,
    observe,
)
from runtime.agent.supervisor import StageSettings, Supervisor
from runtime.agent.vllm_facts import VllmFacts
from runtime.agent.weight_server import WeightServer
from runtime.backoff import Backoff
from runtime.checkpoints.engine_fit import offers_of
from runtime.link_measuring import LinkListener
from runtime.membership.identity import DESIRED_FILE, DataDir, Joined
from runtime.process_log import ProcessLog
from runtime.protocol.complaints import StartRefused
from runtime.protocol.control import AgentIdentity, DesiredState, ObservedState
from runtime.protocol.endpoints import parse_endpoint
from runtime.protocol.link_news import LinkNews
from runtime.protocol.phases import Phase
from runtime.protocol.profiling import ProfilingPhase
from runtime.protocol.weight_fetch import NodeWeights
from runtime.reaching import Reaching
from runtime.tasks import first_end, unless, within
from runtime.web_client import ServerRefused, WebClient, WebError

logger = logging.getLogger(__name__)

# Changes that follow each other faster than this are told in one heartbeat.
_MIN_HEARTBEAT_GAP_S = 0.1
_MAX_HEARTBEAT_GAP_S = 5.0  # while helixweb does not answer
GOODBYE_WITHIN_S = 2.0


class NodeRemoved(StartRefused):
    """The credential is not known any more: this node was removed from its cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The node that an agent is: its membership, what it announces, its files and its log."""

    joined: Joined
    announcement: AgentIdentity
    data_dir: DataDir
    log: NodeLog


class Agent:
    """Owns all that runs on one node: one stage process at most, or whole-model instances.

    `runtime.agent.main` makes one and calls `run` for the life of the process. `weights`: None
    where it serves none. `vllm_facts`: what is still to be asked of vLLM.
    """

    def __init__(
        self,
        web: WebClient,
        node: Node,
        *,
        stages: StageSettings,
        instances: InstanceSettings,
        rng: random.Random,
        weights: WeightServer | None = None,
        vllm_facts: VllmFacts | None = None,
        goodbye_within_s: float = GOODBYE_WITHIN_S,
    ) -> None:
        self._web, self._node, self._stages, self._weights = web, node, stages, weights
        self._announcement = node.announcement
        self._is_announced = node.joined.is_announced
        self._vllm_facts = vllm_facts
        self._backoff = Backoff(rng=rng, limit_s=_MAX_HEARTBEAT_GAP_S)
        self._goodbye_within_s = goodbye_within_s
        self._desired: DesiredState | None = None
        self._to_reconcile, self._to_tell = asyncio.Event(), asyncio.Event()
        self._news: object = None  # what pages must show at once when it changes
        self._link_news = LinkNews()
        self._heard_at: float | None = None
        self._heartbeats_failed_total = 0
        self._supervisor = Supervisor(
            settings=stages,
            log=ProcessLog(node.data_dir.stage_log, on_line=node.log.add_stage_line),
            on_change=self._note_change,
        )
        self._manager = InstanceManager(
            settings=instances,
            directory=node.data_dir.instances,
            on_change=self._note_change,
            is_free=lambda: self._supervisor.local.running is None,
            on_line=node.log.add_instance_line,
        )
        self._profiling = Profiling(
            settings=stages,
            host=urlsplit(node.announcement.data_endpoint).hostname or "",
            emulated=node.announcement.hardware.emulated,
            traffic=self._traffic,
            on_change=self._to_tell.set,
        )
        bound = parse_endpoint(stages.bind, listening=True)
        self._listener = LinkListener(
            host=bound.host, port=bound.port, may_measure=self._may_measure
        )
        self._reaching = Reaching(
            own_endpoint=node.announcement.data_endpoint,
            on_change=self._to_tell.set,
            may_measure=self._may_measure,
            answers=self._listener,
            weights_port=None if weights is None else weights.port,
        )
        self._looks = CheckpointLooks(on_change=self._to_tell.set)

    def _traffic(self) -> Traffic | None:
        return node_traffic(
            self._supervisor.local, self._manager.observed(), now_s=time.monotonic()
        )

    def metrics(self) -> bytes:
        """What Prometheus reads of this node."""
        desired, heard_at = self._desired, self._heard_at
        assignment = None if desired is None else desired.assignment
        return metrics_page(
            None if desired is None else self._observe(desired),
            node=self._node.joined.member.name,
            model_name="" if assignment is None else assignment.model_name,
            heartbeat_age_s=None if heard_at is None else time.monotonic() - heard_at,
            heartbeats_failed_total=self._heartbeats_failed_total,
        )

    async def run(self, stopped: asyncio.Event, *, hurry: asyncio.Event) -> None:
        """Until `stopped`; the stage has gone when it returns: after its requests, unless in a
        `hurry`. Raises NodeRemoved."""
        try:
            await unless(stopped, self._find_first_desired())
            if stopped.is_set():
                return
            await first_end(
                stopped.wait(),
                self._follow(),
                self._beat(),
                self._reconcile(),
                self._manager.run(),
                self._reaching.run(),
                self._learn_engines(),
                tell_log(self._web, self._node.log),
            )
        finally:
            if stopped.is_set():
                await self._leave(hurry)
            hurry.set()
            await self._manager.stop(hurry=hurry, within_s=0)
            await self._manager.close()
            await self._profiling.stop()
            await self._supervisor.stop()
            self._listener.close()

    async def _learn_engines(self) -> None:
        """Tell helixweb what vLLM can run here, if a start of it has to be asked. Never returns."""
        if self._vllm_facts is not None:
            offer = await self._vllm_facts.ask()
            engine = self._stages.engine.model_copy(update={"vllm": offer})
            self._supervisor.use_engine(engine)
            self._profiling.use_engine(engine)
            hardware = self._announcement.hardware.model_copy(update={"engines": offers_of(engine)})
            self._announcement = self._announcement.model_copy(update={"hardware": hardware})
            self._is_announced = False
            self._to_tell.set()
        await asyncio.Event().wait()

    async def _leave(self, hurry: asyncio.Event) -> None:
        """Tell helixweb that this node goes, and have the requests of its stage go on elsewhere."""
        desired = self._desired or DesiredState(generation=0)
        goodbye = asyncio.create_task(self._say_goodbye(self._observe(desired)))
        if not hurry.is_set():
            await asyncio.gather(
                self._supervisor.leave(hurry=hurry),
                self._manager.stop(hurry=hurry, within_s=self._stages.leave_within_s),
            )
        await goodbye

    async def _say_goodbye(self, observed: ObservedState) -> None:
        """Nothing depends on it: a node that says nothing is missed a little later."""
        if not self._is_announced:
            return
        try:
            async with asyncio.timeout(self._goodbye_within_s):
                await self._web.heartbeat(observed, leaving=True)
        except (TimeoutError, WebError) as error:
            logger.warning(
                "helixweb was not told that this node goes: %s", str(error) or "no answer"
            )

    async def _find_first_desired(self) -> None:
        """Ask helixweb; while it is down, go on with what it wanted last."""
        if self._is_announced:
            try:
                self._want(await self._web.agent_desired())
                return
            except WebError as error:
                _raise_if_removed(error)
                logger.warning("cannot fetch the desired state: %s", error)
        stored = self._node.data_dir.load_wanted(DesiredState, DESIRED_FILE)
        if stored is not None:
            logger.info("going on with generation %d of the last run", stored.generation)
            self._want(stored)

    async def _follow(self) -> None:
        """Hear of each change as it happens."""
        try:
            async for desired in self._web.desired_states(DesiredState):
                # Sent before what we know was fetched; a real step back shows in the heartbeat.
                if self._desired is None or desired.generation >= self._desired.generation:
                    self._want(desired)
        except WebError as error:
            _raise_if_removed(error)
            raise

    async def _beat(self) -> None:
        """Tell what is, at least every interval; notice changes that were not heard."""
        is_heard = True
        while True:
            wait_s = self._node.joined.member.heartbeat_interval_s
            self._to_tell.clear()
            try:
                await self._tell()
                self._heard_at = time.monotonic()
                if not is_heard:
                    logger.info("helixweb answers again")
                is_heard = True
                self._backoff.reset()
            except WebError as error:
                _raise_if_removed(error)
                self._heartbeats_failed_total += 1
                if is_heard:
                    logger.warning("heartbeat not taken, the stage runs on: %s", error)
                is_heard = False
                wait_s = max(self._backoff.next_s(), _MIN_HEARTBEAT_GAP_S)
                await asyncio.sleep(wait_s)
                continue
            await asyncio.sleep(_MIN_HEARTBEAT_GAP_S)
            await within(wait_s, self._to_tell.wait())

    async def _tell(self) -> None:
        if not self._is_announced:
            await self._web.announce(self._announcement)
            self._is_announced = True
        desired = self._desired or DesiredState(generation=0)
        observed = self._observe(desired)
        reply = await self._web.heartbeat(
            observed,
            profiling=self._profiling.progress,
            reach=self._reaching.state,
            looked=self._looks.answers,
        )
        self._reaching.want(reply.to_reach, reply.to_measure)
        if observed.stage is not None:
            self._link_news.told(observed.stage.links)
        self._profiling.want(reply.profile)
        if self._desired is None or reply.generation != self._desired.generation:
            self._want(await self._web.agent_desired())

    async def _reconcile(self) -> None:
        """One step at a time towards what is wanted, then wait for a change or for time to pass."""
        while True:
            self._to_reconcile.clear()
            if self._desired is None:
                await self._to_reconcile.wait()
                continue
            local = self._supervisor.local
            action = next_action(self._desired, local, now_s=time.monotonic())
            if isinstance(action, StartStage) and self._manager.holds_any:
                await self._to_reconcile.wait()  # they hold memory, and are ending
            elif isinstance(action, StartStage):
                self._listener.close()  # the stage's port from now on
                await self._supervisor.start(action.assignment)
            elif isinstance(action, AddGeneration):
                await self._supervisor.add(action.assignment)
            elif isinstance(action, KillStage):
                await self._supervisor.kill(action.message)
            elif action is not None:
                await self._supervisor.stop()
            else:
                await self._listen_while_idle(self._desired)
                again_s = look_again_at_s(self._desired, local)
                wait_s = None if again_s is None else max(0.0, again_s - time.monotonic())
                await within(wait_s, self._to_reconcile.wait())

    async def _listen_while_idle(self, desired: DesiredState) -> None:
        """Have others find and measure the data port while no stage is wanted there."""
        running = self._supervisor.local.running
        is_idle = running is None and desired.assignment is None
        if is_idle and not self._announcement.hardware.emulated:
            try:
                await self._listener.open()
            except OSError as error:
                logger.warning("nothing listens at %s: %s", self._announcement.data_endpoint, error)
        is_ready = running is not None and running.phase is Phase.READY
        self._reaching.note_listening(self._listener.is_open or is_ready)

    def _may_measure(self) -> bool:
        """Whether links may be measured: nothing is served here, and the node is not measured."""
        progress = self._profiling.progress
        is_profiled = progress is not None and progress.phase in (
            ProfilingPhase.WAITING,
            ProfilingPhase.MEASURING,
        )
        return self._listener.is_open and not self._manager.holds_any and not is_profiled

    def _observe(self, desired: DesiredState) -> ObservedState:
        observed = observe(desired, self._supervisor.local, now_s=time.monotonic())
        running = self._supervisor.local.running
        weights = NodeWeights(
            port=None if self._weights is None else self._weights.port,
            fetch=None if running is None else running.fetch,
        )
        observed = observed.model_copy(update={"weights": weights})
        instances = self._manager.observed()
        return with_instances(observed, instances, wanted=len(desired.instances))

    def _want(self, desired: DesiredState) -> None:
        self._looks.want(desired.looks)
        desired = desired.model_copy(update={"looks": ()})
        if desired == self._desired:
            return
        logger.info("generation %d is wanted", desired.generation)
        self._desired = desired
        if self._weights is not None:
            self._weights.serve(desired.assignment)
        if not goes_on(desired):
            self._manager.want(desired.instances)
        try:
            self._node.data_dir.save_wanted(DESIRED_FILE, desired)
        except OSError as error:  # a full disk must not end the stage
            logger.error("a start without helixweb will not know this generation: %s", error)
        self._note_change()

    def _note_change(self) -> None:
        """Of what is wanted or what is: decide anew; tell at once what pages show."""
        self._to_reconcile.set()
        if self._desired is None:
            return
        observed = self._observe(self._desired)
        percent = None if observed.loaded_ratio is None else int(100 * observed.loaded_ratio)
        also = observed.also_serving
        ports = tuple((one.name, one.port, one.condition) for one in observed.instances)
        news = (observed.generation, observed.phase, observed.message, percent, also, ports)
        links = {} if observed.stage is None else observed.stage.links
        if self._link_news.take(links, now_s=time.monotonic()) or news != self._news:
            self._news = news
            self._to_tell.set()


def _raise_if_removed(error: WebError) -> None:
    if isinstance(error, ServerRefused) and error.is_unknown:
        raise NodeRemoved(error.detail or str(error)) from error
