"""Keeps the whole-model instances of this node as they shall be: `want`, `run`, `stop`.

What is not wanted any more ends before anything new begins, since it holds memory, and nothing
begins while a stage runs. `runtime/instances` starts, asks, restarts and drains each process.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from runtime.agent.instance_specs import CannotRun, InstanceSettings, spec_of
from runtime.instances.asking import PROBE_TIMEOUT_S, AskedInstance, instance_client
from runtime.instances.certificate import CertificateFiles, load_or_create
from runtime.instances.command_lines import address_of, launch_of
from runtime.instances.health import LOOK_EVERY_S, Condition, Patience
from runtime.instances.instance import SupervisedInstance, look_after
from runtime.instances.process import ServerProcess
from runtime.membership.data_address import AddressError, choose_port
from runtime.protocol.control import DesiredState, ObservedState
from runtime.protocol.instance_orders import MOST_SAID, AssignedInstance, ObservedInstance
from runtime.protocol.phases import Phase
from runtime.protocol.ports import is_free
from runtime.tasks import unless, within

_LOOK_S = 0.3

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class _Kept:
    """An instance of ours. `ending`: it is being drained and ended."""

    order: AssignedInstance
    port: int
    instance: SupervisedInstance
    process: ServerProcess
    running: asyncio.Task[None]
    ending: asyncio.Task[None] | None = None


class InstanceManager:
    """Owns the whole-model instances of one node; the agent calls it.

    `on_change` is called when what is observed has changed. `is_free`: no stage runs. `on_line`
    hears the names of instances with the lines of their logs.
    """

    def __init__(
        self,
        *,
        settings: InstanceSettings,
        directory: Path,
        on_change: Callable[[], None],
        is_free: Callable[[], bool],
        on_line: Callable[[str, str], None] = lambda name, line: None,
        clock: Callable[[], float] = time.monotonic,
        look_every_s: float = LOOK_EVERY_S,
    ) -> None:
        self._settings = settings
        self._directory = directory
        self._on_change = on_change
        self._is_free = is_free
        self._on_line = on_line
        self._clock = clock
        self._look_every_s = look_every_s
        self._http = instance_client(timeout=PROBE_TIMEOUT_S)
        self._tls: CertificateFiles | None = None  # where others than this machine ask
        self._wanted: tuple[AssignedInstance, ...] = ()
        self._kept: dict[str, _Kept] = {}
        self._refused: dict[str, str] = {}
        self._ports: dict[str, int] = {}
        self._to_look = asyncio.Event()
        self._seen: object = None

    @property
    def holds_any(self) -> bool:
        """Whether memory is held by an instance, wanted or not."""
        return bool(self._kept)

    def want(self, orders: tuple[AssignedInstance, ...]) -> None:
        """These and no others; those that are there already go on."""
        if orders != self._wanted:
            self._wanted = orders
            self._refused = {}
            self._to_look.set()

    async def run(self) -> None:
        """Until cancelled; then call `stop`."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self._settings.is_alone:
            self._tls = await asyncio.to_thread(load_or_create, self._directory)
        await self._end_left_over()
        while True:
            await self._step()
            self._tell_changes()
            self._to_look.clear()
            idle = not self._wanted and not self._kept
            await within(None if idle else _LOOK_S, self._to_look.wait())

    async def stop(self, *, hurry: asyncio.Event, within_s: float) -> None:
        """End them all: after their requests, unless in a `hurry` or that lasts too long."""
        self._wanted = ()
        for kept in self._kept.values():
            self._end(kept)
        ending = [kept.ending for kept in self._kept.values() if kept.ending is not None]
        if ending:
            await self._wait_until_ended(ending, hurry=hurry, within_s=within_s)
        self._forget_ended()

    async def close(self) -> None:
        """After `stop`: what could not be ended as it should is killed."""
        for kept in self._kept.values():
            kept.process.kill()
        await self._http.aclose()

    async def _wait_until_ended(
        self, ending: list[asyncio.Task[None]], *, hurry: asyncio.Event, within_s: float
    ) -> None:
        await within(within_s, unless(hurry, asyncio.wait(ending)))
        for kept in self._kept.values():
            kept.instance.hurry()
        await asyncio.wait(ending)

    async def _end_left_over(self) -> None:
        """What an earlier life of this agent, that was killed, left running."""
        for path in self._directory.glob("*.pid"):
            await ServerProcess(self._directory, name=path.stem).end_left_over()

    async def _step(self) -> None:
        wanted = {order.name: order for order in self._wanted}
        self._forget_ended()
        for name, kept in self._kept.items():
            if wanted.get(name) != kept.order:
                self._end(kept)
            elif self._has_lost_its_port(kept):
                del self._ports[name]
                self._end(kept)  # it begins again elsewhere
        if any(kept.ending is not None for kept in self._kept.values()) or not self._is_free():
            return
        for name, order in wanted.items():
            if name not in self._kept and name not in self._refused:
                await self._begin(order)

    def _has_lost_its_port(self, kept: _Kept) -> bool:
        """Whether another's server came first: it will never begin there."""
        waits = kept.ending is None and kept.instance.state.condition is Condition.WAITING
        if not waits or is_free(self._settings.host, kept.port):
            return False
        logger.warning("instance %s: port %d is another's now", kept.order.name, kept.port)
        return True

    async def _begin(self, order: AssignedInstance) -> None:
        settings, host = self._settings, self._settings.host
        try:
            port = await asyncio.to_thread(
                choose_port, host, wanted=0, kept=self._ports.get(order.name)
            )
            spec = spec_of(order, port=port, settings=settings, beside=self._wanted)
        except (AddressError, CannotRun) as error:
            logger.error("instance %s cannot run here: %s", order.name, error)
            self._refused[order.name] = str(error)
            return
        self._ports[order.name] = port
        process = ServerProcess(
            self._directory,
            name=order.name,
            on_line=partial(self._on_line, order.name),
            clock=self._clock,
        )
        instance = SupervisedInstance(
            order.name,
            asked=AskedInstance(
                self._http,
                address_of(
                    spec,
                    model_name=order.model_name,
                    api_key=order.api_key,
                    environment={},
                    host=host,
                    certificate=self._certificate,
                ),
            ),
            launch=launch_of(
                spec,
                model_name=order.model_name,
                api_key=order.api_key,
                host=host,
                tls=self._tls,
            ),
            process=process,
            clock=self._clock,
            patience=Patience(
                start_s=spec.start_patience_s,
                drain_s=spec.drain_patience_s,
                look_every_s=self._look_every_s,
            ),
            requests_under_way=lambda: 0,  # its metrics say
        )
        self._kept[order.name] = _Kept(
            order=order,
            port=port,
            instance=instance,
            process=process,
            running=asyncio.create_task(
                look_after(order.name, instance, again_s=self._look_every_s)
            ),
        )

    @property
    def _certificate(self) -> str:
        return "" if self._tls is None else self._tls.text

    def _end(self, kept: _Kept) -> None:
        if kept.ending is None:
            kept.ending = asyncio.create_task(kept.instance.stop())

    def _forget_ended(self) -> None:
        for name, kept in list(self._kept.items()):
            if kept.ending is None or not kept.ending.done():
                continue
            kept.running.cancel()
            if (error := kept.ending.exception()) is not None:
                logger.error("instance %s could not be stopped", name, exc_info=error)
                kept.process.kill()
            del self._kept[name]

    def _tell_changes(self) -> None:
        seen = [
            (one.name, one.condition, one.message, one.port, one.progress)
            for one in self.observed()
        ]
        if seen != self._seen:
            self._seen = seen
            self._on_change()

    def observed(self) -> tuple[ObservedInstance, ...]:
        """Those that are wanted, and those that still end."""
        orders = {order.name: order for order in self._wanted}
        names = [*orders, *(name for name in self._kept if name not in orders)]
        return tuple(self._observed(name) for name in names)

    def _observed(self, name: str) -> ObservedInstance:
        kept = self._kept.get(name)
        if kept is None:
            refused = self._refused.get(name, "")
            condition = Condition.WAITING if refused else Condition.IDLE
            return ObservedInstance(name=name, condition=condition, message=refused[:MOST_SAID])
        state, load = kept.instance.state, kept.instance.load
        is_ready = state.condition is Condition.READY
        words = "" if is_ready else kept.process.last_words
        return ObservedInstance(
            name=name,
            condition=state.condition,
            message=state.message[:MOST_SAID],
            port=kept.port,
            progress=None if is_ready else kept.process.said.progress,
            requests=load.requests,
            kv_usage=load.kv_usage,
            log_tail=words[-MOST_SAID:],
            certificate=self._certificate,
        )


def goes_on(desired: DesiredState) -> bool:
    """Whether what instances there are serve on: the node is left out of a plan whose coordinator
    has not taken over yet."""
    return desired.continues and not desired.instances and desired.assignment is None


def with_instances(
    observed: ObservedState, instances: tuple[ObservedInstance, ...], *, wanted: int
) -> ObservedState:
    """What is told of a node that has or had instances: the phase of the least ready of them.

    `wanted` of the instances shall be; the others are still ending.
    """
    if not wanted:
        if not instances or observed.phase is not Phase.IDLE:
            return observed.model_copy(update={"instances": instances})
        return observed.model_copy(
            update={
                "phase": Phase.STOPPING,
                "message": f"ending {', '.join(one.name for one in instances)}",
                "instances": instances,
            }
        )
    if observed.phase is Phase.STOPPING:  # a stage goes first
        return observed.model_copy(update={"instances": instances})
    troubled = [one for one in instances[:wanted] if one.condition in _TROUBLED]
    ready = [one for one in instances[:wanted] if one.condition == Condition.READY]
    if troubled:
        phase = Phase.FAILED
        message = "; ".join(f"instance {one.name}: {one.message}" for one in troubled)
    else:
        phase = Phase.READY if len(ready) == wanted else Phase.LOADING
        message = next((one.message for one in instances[:wanted] if one not in ready), "")
    known = [one.progress for one in instances[:wanted] if one.progress is not None]
    return observed.model_copy(
        update={
            "phase": phase,
            "message": message[:MOST_SAID],
            "loaded_ratio": min(known, default=None) if phase is Phase.LOADING else None,
            "instances": instances,
        }
    )


_TROUBLED = frozenset({Condition.WAITING, Condition.UNWELL, Condition.STOPPING})
