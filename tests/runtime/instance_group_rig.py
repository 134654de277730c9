"""A coordinator beside stand-ins for instances, for tests."""

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
from coordinator_doubles import (
    ScriptedStages,
    make_dispatcher,
    make_instances,
    make_serving,
    routing,
)
from coordinator_rig import EOS
from front_rig import There, ask, stand_in
from instance_rig import PATIENCE_S, run, wait_until
from starlette.applications import Starlette

from planner.domain.placement import LayerRange, Placement
from planner.domain.problem import Workload
from runtime.api.access import ApiKeys
from runtime.coordinator.dispatcher import Dispatcher
from runtime.coordinator.instance_service import InstanceService
from runtime.coordinator.plan_follower import PlanFollower
from runtime.coordinator.reporter import build_report
from runtime.coordinator.request_stats import RequestStats
from runtime.coordinator.tracing import Tracer
from runtime.membership.identity import DataDir
from runtime.openai_app import Backend, assemble
from runtime.protocol.control import (
    CoordinatorDesired,
    CoordinatorReport,
    ServingPlan,
)
from runtime.protocol.instance_orders import PIPELINES, ServedInstance
from runtime.protocol.trust import issuers

KEY = "hlx_key"
OWNER = hashlib.sha256(KEY.encode()).hexdigest()


def served(name: str, there: There, **changes: Any) -> ServedInstance:
    return ServedInstance(
        name=name,
        node=name,
        url=there.address.url,
        model=there.address.model,
        api_key=there.address.api_key,
        kv_room_tokens=4096,
        **changes,
    )


def desired(
    *instances: ServedInstance,
    generation: int = 1,
    total: int | None = None,
    stages: dict[str, LayerRange] | None = None,
    model_name: str = "llama",
    **changes: Any,
) -> CoordinatorDesired:
    plan = ServingPlan(
        deployment_id=1,
        generation=generation,
        model_name=model_name,
        checkpoint="/model",
        num_layers=4,
        partial_inference=True,
        placement=Placement(layers=stages or {}),
        routing_weights={},
        workload=Workload(mean_prompt_tokens=10, mean_output_tokens=10),
        max_context_tokens=100,
        instances=instances,
        instances_total=len(instances) if total is None else total,
        peers=(),
    )
    return CoordinatorDesired(generation=generation, plan=plan, **changes)


@dataclass(kw_only=True)
class Coordinator:
    """Its OpenAI application, with instances and pipelines behind it; there is no helixweb.

    `there`: the servers of the instances, by name. `layers`: of the pipelines' stages.
    """

    service: InstanceService
    app: Starlette
    stats: RequestStats
    tracer: Tracer
    pipelines: Dispatcher
    follower: PlanFollower
    layers: dict[str, LayerRange]
    there: dict[str, There]
    model_name: str

    @property
    def report(self) -> CoordinatorReport:
        return build_report(
            dispatcher=self.pipelines,
            instances=self.service,
            stats=self.stats,
            follower=self.follower,
            now=time.monotonic(),
            links={},
        )

    def follow(self, wanted: CoordinatorDesired) -> None:
        """Do what a follower does for instances."""
        self.pipelines.draining.wish(wanted.draining)
        self.pipelines.pause(paused=wanted.paused)
        self.service.serve(wanted.plan)

    def serve(self, *names: str, **changes: Any) -> None:
        """A plan of these instances, and of the pipelines if there are some."""
        instances = [served(name, self.there[name]) for name in names]
        of_all = {"stages": self.layers, "model_name": self.model_name}
        self.follow(desired(*instances, **of_all | changes))

    def release(self, name: str) -> None:
        """The instance gives the answers that it held."""
        engine = self.there[name].engine
        assert engine is not None
        engine.released.set()

    async def ask(self, **body: Any) -> Any:
        asked = {"model": "llama", "prompt": "hello", "max_tokens": 3, **body}
        return await ask(self.app, "/v1/completions", asked)

    async def is_open(self, *names: str) -> None:
        def all_open() -> bool:
            group = self.service.serving
            return group is not None and set(group.balance.open_instances()) == set(names)

        await wait_until(all_open)


@asynccontextmanager
async def coordinator(
    there: dict[str, There],
    pipelines: tuple[ScriptedStages, Path] | None,
    *,
    clock: Callable[[], float],
    model_name: str,
) -> AsyncIterator[Coordinator]:
    tracer = Tracer(traces_per_s=100, clock=clock, unix_time=time.time)
    stages = ScriptedStages(lambda _: []) if pipelines is None else pipelines[0]
    dispatcher, stats = make_dispatcher(stages, clock=clock, tracer=tracer)
    if pipelines is not None:
        dispatcher.serve(make_serving(pipelines[1], model_name=model_name, clock=clock))
    with TemporaryDirectory() as directory:
        follower = PlanFollower(
            dispatcher=dispatcher,
            keys=ApiKeys(),
            data_dir=DataDir(Path(directory)),
            set_peers=lambda _: None,
            routing=routing(),
        )
    async with httpx.AsyncClient(timeout=PATIENCE_S, trust_env=False, verify=issuers()) as http:
        service, pipeline_backend = make_instances(dispatcher, http=http, clock=clock)

        def backend() -> Backend:
            return service.serving or pipeline_backend

        ticking = asyncio.create_task(service.tick())
        stepping = asyncio.create_task(step_forever(stages, dispatcher))
        try:
            yield Coordinator(
                service=service,
                app=assemble(backend, keys=ApiKeys([OWNER])),
                stats=stats,
                tracer=tracer,
                pipelines=dispatcher,
                follower=follower,
                layers={} if pipelines is None else {"n": LayerRange(first=0, end=4)},
                there=there,
                model_name=model_name,
            )
        finally:
            for task in (ticking, stepping):
                task.cancel()
            await asyncio.gather(ticking, stepping, return_exceptions=True)
            await service.stop()


async def step_forever(stages: ScriptedStages, pipelines: Dispatcher) -> None:
    while True:
        if pipelines.serving is not None:
            stages.report()  # by the real clock they would fall silent
        stages.step()
        await asyncio.sleep(0.001)


def three_letters(checkpoint: Path) -> tuple[ScriptedStages, Path]:
    """Pipelines that answer everything so."""
    return ScriptedStages(lambda _: [65, 66, 67, EOS]), checkpoint


def with_instances(
    models: dict[str, str],
    check: Callable[[Coordinator], Awaitable[None]],
    *,
    serves: Sequence[str] | None = None,
    pipelines: tuple[ScriptedStages, Path] | None = None,
    clock: Callable[[], float] = time.monotonic,
    model_name: str = "llama",
) -> None:
    """`check` a coordinator beside stand-ins, by name: "m:mode=held" is model m and its behaviour.

    Those that it `serves` (all, if none are named) are open then, and `pipelines`: stages, and the
    checkpoint of their model. With none of both it serves nothing yet.
    """

    async def life() -> None:
        with ExitStack() as stack:
            there = {name: stack.enter_context(stand_in(model)) for name, model in models.items()}
            async with coordinator(there, pipelines, clock=clock, model_name=model_name) as here:
                names = models if serves is None else serves
                if names:
                    here.serve(*names)
                    await here.is_open(*names, *((PIPELINES,) if pipelines else ()))
                await check(here)

    run(life())
