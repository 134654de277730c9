"""Makes the dispatcher serve what helixweb wants, and remembers it for the next start.

The file has the last desired state, and which plan served when it came, so that a coordinator
serves while helixweb is down.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

from planner.domain.errors import PlannerError
from planner.routers.load_aware import DEFAULT_THETA
from runtime.api.access import ApiKeys
from runtime.checkpoints.errors import CheckpointError
from runtime.checkpoints.weight_source import WeightSource
from runtime.coordinator.dispatcher import Dispatcher
from runtime.coordinator.serving import Routing, Serving, pages_of
from runtime.coordinator.tokenizer import CheckpointTokenizer, load_tokenizer
from runtime.membership.identity import PLAN_FILE, DataDir
from runtime.protocol.control import CoordinatorDesired, PeerAddress, ServingPlan
from runtime.protocol.weight_access import WeightAccess

_TICK_S = 1.0
REFUSED = "the deployed plan cannot be served; its deployment's page says why"
logger = logging.getLogger(__name__)


class Stored(CoordinatorDesired):
    """`before`: the plan that served when this became desired, if it may still do so."""

    before: ServingPlan | None = None

    @classmethod
    def of(cls, desired: CoordinatorDesired, *, before: ServingPlan | None = None) -> Self:
        return cls(**_fields(desired), before=before)

    @property
    def desired(self) -> CoordinatorDesired:
        return CoordinatorDesired(**_fields(self))


def _fields(desired: CoordinatorDesired) -> dict[str, Any]:
    return {name: getattr(desired, name) for name in CoordinatorDesired.model_fields}


@dataclass(slots=True, kw_only=True, eq=False)
class PlanFollower:
    """Owns which plan is wanted; the control loop calls it.

    Applies desired states one by one; level-triggered, so the same one twice is harmless.

    `serve_instances` gets every plan, before the stages' part is served.
    `weights`: where tokenizers that are not on this machine come from.
    """

    dispatcher: Dispatcher
    keys: ApiKeys
    data_dir: DataDir
    set_peers: Callable[[tuple[PeerAddress, ...]], None]
    routing: Routing
    serve_instances: Callable[[ServingPlan | None], None] = lambda _: None
    weights: Callable[[], WeightAccess] | None = None
    _applying: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)
    _desired: CoordinatorDesired | None = field(init=False, default=None)
    _is_stored: bool = field(init=False, default=True)
    # of the desired state that was applied last; 0 before the first
    generation: int = field(init=False, default=0)
    _peers: tuple[PeerAddress, ...] | None = field(init=False, default=None)
    # why the wanted plan is not served; empty when it is
    trouble: str = field(init=False, default="")
    refused_generation: int | None = field(init=False, default=None)  # of that plan

    @property
    def is_applying(self) -> bool:
        """True while a desired state is being applied."""
        return self._applying.locked()

    async def apply_stored(self) -> None:
        """What was wanted when this process ran last, beside what served then if that is not
        over."""
        stored = self.data_dir.load_wanted(Stored, PLAN_FILE)
        if stored is None:
            return
        if stored.before is not None:
            await self._serve(stored.before, was_served=True)
        await self.apply(stored.desired, was_served=True)

    async def apply(self, desired: CoordinatorDesired, *, was_served: bool = False) -> None:
        """Serve `desired`. A plan that cannot be served leaves `trouble`, and what served before if
        that may go on beside it; else nothing.

        `was_served`: the process that ran before this one served it, and its clients still ask.
        """
        async with self._applying:
            if desired == self._desired:
                return
            self.keys.replace(desired.api_key_hashes)
            self.keys.admit(desired.keys, peppers=desired.peppers)
            before = None if self._desired is None else self._desired.plan
            self._desired = desired
            await asyncio.to_thread(self._remember, desired)
            self.dispatcher.draining.wish(desired.draining)
            self.dispatcher.pause(paused=desired.paused)
            self.serve_instances(desired.plan)
            if desired.plan is None or not desired.plan.placement.layers:
                self.trouble, self.refused_generation = "", None
                self.dispatcher.serve(None)
            elif before is not None and _stages(before) == _stages(desired.plan):
                self._reweigh(desired.plan)
            else:
                await self._serve(desired.plan, was_served=was_served)
            self.follow_peers()
            self.generation = desired.generation

    async def store_again(self) -> None:
        """What could not be stored, as on a full disk; call it about once a second."""
        if self._is_stored or self._applying.locked():
            return
        async with self._applying:
            if self._desired is not None:
                await asyncio.to_thread(self._remember, self._desired)

    async def run(self) -> None:
        """Do forever what is due about once a second."""
        while True:
            await asyncio.sleep(_TICK_S)
            self.follow_peers()
            await self.store_again()

    def follow_peers(self) -> None:
        """Talk to the stages of all plans that there are; call it about once a second."""
        peers = self.dispatcher.plans.peers
        if peers != self._peers:
            self._peers = peers
            self.set_peers(peers)

    def _remember(self, desired: CoordinatorDesired) -> None:
        serving = self.dispatcher.serving
        is_other = serving is not None and serving.generation != desired.generation
        try:
            before = serving.plan if serving and is_other else None
            self.data_dir.save_wanted(PLAN_FILE, Stored.of(desired, before=before))
        except OSError as error:  # a full disk must not stop serving
            if self._is_stored:
                logger.error("the plan would not be known after a restart: %s", error)
            self._is_stored = False
        else:
            self._is_stored = True

    def _reweigh(self, plan: ServingPlan) -> None:
        known = self.dispatcher.plans.of(plan.generation)
        if known is None:
            return
        known.readdress(plan.peers)
        if known.plan.routing_weights == plan.routing_weights:
            return
        try:
            known.reweigh(plan, routing=self.routing)
        except PlannerError as error:
            logger.error("the weights stay as they were: %s", error)
            return
        self.dispatcher.plans.admission.let_in()
        logger.info("generation %d has other routing weights", plan.generation)

    async def _serve(self, plan: ServingPlan, *, was_served: bool) -> None:
        logger.info("plan of generation %d: %s", plan.generation, plan.model_name)
        try:
            tokenizer = await asyncio.to_thread(self._tokenizer, plan.checkpoint)
            serving = Serving(
                plan=plan,
                tokenizer=tokenizer,
                routing=self.routing,
                before=self.dispatcher.serving,
            )
        except (CheckpointError, PlannerError, OSError) as error:
            self.trouble = f"plan of generation {plan.generation} cannot be served: {error}"
            self.refused_generation = plan.generation
            logger.error("%s", self.trouble)
            before = self.dispatcher.serving
            # stages that load it keep what serves now until they are asked to forget that
            if before is None or pages_of(plan) != pages_of(before.plan):
                self.dispatcher.serve(None, why_none=REFUSED)
            return
        self.trouble, self.refused_generation = "", None
        self.dispatcher.serve(serving, was_served=was_served)

    def _tokenizer(self, checkpoint: str) -> CheckpointTokenizer:
        access = None if self.weights is None else self.weights()
        return load_tokenizer(WeightSource.of(checkpoint, access).folder)


def _stages(plan: ServingPlan) -> ServingPlan:
    """What stages and requests depend on: all but addresses, weights and instances."""
    return plan.model_copy(
        update={
            "peers": (),
            "routing_weights": {},
            "instances": (),
            "instances_total": 0,
            "theta": DEFAULT_THETA,
        }
    )
