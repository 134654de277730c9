"""How many steps of a deployment's stages the cores of this machine can run at once.

Micro-batches let stages compute at the same time. Stages that share cores cannot, and each
micro-batch reads all weights again: a step of few rows costs what reading the weights costs.
A stage learns which it is from two things, as neither tells in both cases. While batches are many,
its thread waits for a core. While they are few it does not, wherever it runs; then cores that
others do not need are idle.
"""

from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

from runtime.engine.core_use import CoreUse
from runtime.protocol.control import PeerAddress
from runtime.protocol.coordinators import is_coordinator
from runtime.protocol.engine_options import EngineOptions, SharedCoresRule

WINDOW_S = 0.25  # the kernel counts idle time in ticks of 10 ms
# The coordinator and clients on the same machine take some time of any stage's cores.
_DELAYED = 0.25
# Cores fall idle for moments while a batch is handed on.
_IDLE = 0.5


class SharedCores:
    """Bounds steps where stages share a machine's cores; the stage asks it.

    The bound, from counters read about every `WINDOW_S` while requests are here.

    `threads`: cores that a step uses. The bound is `most` until the cores turn out to be short.
    """

    def __init__(self, read: Callable[[], CoreUse], *, threads: int, most: float) -> None:
        self._read = read
        self._threads = threads
        self._most = most
        self._steps_at_once = most
        self._before: CoreUse | None = None

    @property
    def steps_at_once(self) -> float:
        """At least 1."""
        return self._steps_at_once

    @property
    def bound(self) -> float | None:
        """`steps_at_once` where the cores are short, else None."""
        return self._steps_at_once if self._steps_at_once < self._most else None

    def look(self, *, now_s: float, micro_batches: float) -> None:
        """After a step, while `micro_batches` are under way, within the bound or not."""
        if self._before is None:
            self._before = self._read()
        elif now_s - self._before.at_s >= WINDOW_S:
            before, self._before = self._before, self._read()
            self._steps_at_once = steps_at_once(
                before,
                self._before,
                under_way=min(micro_batches, self._steps_at_once),
                threads=self._threads,
                bound=self._steps_at_once,
                most=self._most,
            )

    def pause(self) -> None:
        """No request is here: what happens until the next one comes says nothing."""
        self._before = None


def steps_at_once(
    before: CoreUse,
    after: CoreUse,
    *,
    under_way: float,
    threads: int,
    bound: float,
    most: float,
) -> float:
    """The bound that follows `bound`, in [1, most], after a time with `under_way` micro-batches.

    A thread that got a core for the share s of the time it wanted one: s of them can run at once.
    Idle cores have room for more. Between the two nothing changes.
    """
    ran_s, delayed_s = after.ran_s - before.ran_s, after.delayed_s - before.delayed_s
    wanted_s, passed_s = ran_s + delayed_s, after.at_s - before.at_s
    idle = 0.0 if passed_s <= 0 else (after.idle_s - before.idle_s) / passed_s / threads
    if idle >= _IDLE:
        bound = under_way + idle if bound < most else most
    elif wanted_s > 0 and delayed_s > _DELAYED * wanted_s:
        bound = under_way * ran_s / wanted_s
    return min(max(bound, 1.0), most)


def may_share_cores(peers: Iterable[PeerAddress], options: EngineOptions) -> bool:
    """Whether a stage shall find out: the deployment has several, all at one address, and the
    number of micro-batches is measured."""
    if options.shared_cores is SharedCoresRule.IGNORE:
        return False
    if options.decode_cap != "adaptive" or options.micro_batches is not None:
        return False
    hosts = [urlsplit(peer.endpoint).hostname for peer in peers if not is_coordinator(peer.name)]
    return len(hosts) > 1 and len(set(hosts)) == 1
