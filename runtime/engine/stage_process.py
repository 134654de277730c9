"""What a stage uses of the process that it runs in, and who hears of it there."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from runtime.engine.departure import Departure
from runtime.engine.shared_cores import SharedCores
from runtime.protocol.control import LinkStats, PeerAddress, StageStats
from runtime.protocol.data import MeasureOrder
from runtime.protocol.stage_pipe import StageEvent
from runtime.transport.heartbeats import PeerEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class StageProcess:
    """The process of a stage and its machine; made where the process starts, used by `Stage`.

    `incarnation` (32 bits): coordinators tell this process by it from one before it.
    `relative_speed` below 1 makes a step last 1/relative_speed as long as it did, without its
    waiting for a core. `core_delay`: how long the thread that runs steps has so waited since it
    began, in seconds; None: that cannot be read. `shared_cores`: what finds out whether the
    deployment's stages share this machine's cores; None: they do not. `peer_events`: news of the
    coordinators' processes. `on_step` gets the rows of every step that begins, and again once
    messages were taken beside it, so that a long one is not taken for a hang. `link_stats`: what is
    known of links; `measure` gets a coordinator's order to find out what an unused link does.
    `departure`: when the stage is to leave; None: never. `clock` and `sleep` are in seconds.
    """

    incarnation: int = 1
    relative_speed: float = 1.0
    core_delay: Callable[[], float] | None = None
    shared_cores: SharedCores | None = None
    peer_events: Callable[[], list[PeerEvent]] = list
    on_step: Callable[[int], None] = lambda _: None
    link_stats: Callable[[], dict[str, LinkStats]] = dict
    measure: Callable[[MeasureOrder], None] = lambda _: None
    departure: Departure | None = None
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


@dataclass(frozen=True, slots=True, kw_only=True)
class StageListeners:
    """Who hears of a stage within its process.

    `on_report` gets its counters about once a second, `tell` what its agent must know of
    generations and coordinators, `meet` the peers of all generations when they change.
    """

    on_report: Callable[[StageStats], None] = lambda _: None
    tell: Callable[[StageEvent], None] = lambda _: None
    meet: Callable[[tuple[PeerAddress, ...]], None] = lambda _: None
