"""What a stage uses of the process that it runs in."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue

from runtime.engine.departure import Departure
from runtime.engine.generation import Generation
from runtime.engine.shared_cores import SharedCores
from runtime.protocol.control import LinkStats, PeerAddress
from runtime.protocol.data import MeasureOrder
from runtime.protocol.stage_pipe import StageEvent
from runtime.transport.heartbeats import PeerEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class StageProcess:
    """The process of a stage and its machine; made where the process starts, used by `Stage`.

    `incarnation` (32 bits): coordinators tell this process by it from one before it.
    `relative_speed` below 1 makes a step last 1/relative_speed as long as it did, without its
    waiting for a core. `core_delay`: how long the thread that runs steps has so waited since it
    began, in seconds; None: that cannot be read. `cores_shared_by` peers: what finds out whether
    these stages share this machine's cores; None: they do not. `peer_events`: news of the
    coordinators' processes. `on_step` gets the rows of every step that begins, and again once
    messages were taken beside it, so that a long one is not taken for a hang. `link_stats`: what is
    known of links; `measure` gets a coordinator's order to find out what an unused link does;
    False: it is in use. `orders`: generations to add, which any thread may put there. `tell` gets
    what the agent must know, `meet` the peers of all generations when they change. `departure`:
    when the stage is to leave; None: never. `clock` and `sleep` are in seconds.
    """

    incarnation: int = 1
    relative_speed: float = 1.0
    core_delay: Callable[[], float] | None = None
    cores_shared_by: Callable[[tuple[PeerAddress, ...]], SharedCores | None] = lambda _: None
    peer_events: Callable[[], list[PeerEvent]] = list
    on_step: Callable[[int], None] = lambda _: None
    link_stats: Callable[[], dict[str, LinkStats]] = dict
    measure: Callable[[MeasureOrder], bool] = lambda _: False
    orders: SimpleQueue[Generation] = field(default_factory=SimpleQueue)
    tell: Callable[[StageEvent], None] = lambda _: None
    meet: Callable[[tuple[PeerAddress, ...]], None] = lambda _: None
    departure: Departure | None = None
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
