"""The simulator's engine, which is C in `planner/loops/simulator/`."""

import ctypes
import weakref
from array import array
from collections.abc import Sequence
from dataclasses import fields
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from planner.native import I64, INTEGERS, POINTER, REAL, REALS, Packed, function
from planner.simulator.engine import (
    NUM_BUCKETS,
    Counts,
    EngineSetup,
    EngineStatistics,
    Floats,
    LinkStatistics,
    NodeStatistics,
    Occurrence,
    OccurrenceKind,
    StageVisit,
)

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class _Occurrence(ctypes.Structure):
    _fields_ = [
        ("kind", I64),
        ("request", I64),
        ("tokens", I64),
        ("time_s", REAL),
        ("first_token_s", REAL),
    ]


class Engine:
    """Runs admitted requests; the caller decides between events which are admitted."""

    def __init__(self, setup: EngineSetup) -> None:
        """Starts at time 0 without requests."""
        self._num_nodes, self._num_links = len(setup.nodes), 0
        self._occurrence = _Occurrence()
        policy = Packed.of(setup, without=("nodes", "shared_bytes_per_s"))
        # The library reads the tables where they are, so they must live as long as it does.
        self._nodes = [Packed.of(node) for node in setup.nodes]
        self._engine = _new(
            policy,
            self._num_nodes,
            np.array([node.address for node in self._nodes], dtype=np.int64),
            len(setup.shared_bytes_per_s),
            np.array(setup.shared_bytes_per_s, dtype=np.float64),
        )
        if not self._engine:
            raise MemoryError("no memory for a simulation")
        weakref.finalize(self, _free, self._engine)

    @property
    def now(self) -> float:
        return float(_now(self._engine))

    def add_link(
        self,
        *,
        source: int,
        target: int,
        bandwidth_bytes_per_s: float,
        latency_s: float,
        shares: Sequence[int],
    ) -> int:
        """The number of a new directed link; `shares` are the shared bandwidths that it uses."""
        number: int = _add_link(
            self._engine,
            source,
            target,
            bandwidth_bytes_per_s,
            latency_s,
            len(shares),
            (I64 * len(shares))(*shares),
        )
        if number < 0:
            raise MemoryError("no memory for a link of a simulation")
        self._num_links += 1
        return number

    def admit(self, *, prompt_tokens: int, output_tokens: int) -> int:
        """The number of a new request, which `begin` sends on its way.

        The number is free again once the request has finished.
        """
        number: int = _admit(self._engine, prompt_tokens, output_tokens)
        if number < 0:
            raise MemoryError("no memory for a request of a simulation")
        return number

    def begin(
        self,
        request: int,
        *,
        grow_at: int,
        stages: Sequence[StageVisit],
        link_home: int,
        link_back: int,
    ) -> None:
        """Send a request's prompt, and the tokens that came before it was preempted, on their way.

        Tokens go by `link_home` to the coordinator and by `link_back` to the first stage, where it
        is no VIA_COORDINATOR or SAME_NODE.
        """
        numbers = array("i", chain.from_iterable(stages))
        if not _begin(
            self._engine,
            request,
            grow_at,
            len(stages),
            numbers.buffer_info()[0],
            link_home,
            link_back,
        ):
            raise MemoryError("no memory for a request of a simulation")

    def give_up(self, request: int) -> None:
        """A preempted request does not begin again; its number is free."""
        _give_up(self._engine, request)

    def set_grow_at(self, request: int, *, tokens: int) -> None:
        """Report an occurrence when the request's sequence has more than `tokens`."""
        _set_grow_at(self._engine, request, tokens)

    def advance(self, until_s: float) -> Occurrence | None:
        """Run to the next occurrence, or to `until_s` and return None."""
        found: int = _advance(self._engine, until_s, ctypes.byref(self._occurrence))
        if found < 0:
            raise MemoryError("no memory for a simulation's events")
        if not found:
            return None
        occurred = self._occurrence
        return Occurrence(
            OccurrenceKind(occurred.kind),
            occurred.request,
            occurred.tokens,
            occurred.time_s,
            occurred.first_token_s,
        )

    def stage_waits_s(self, request: int, *, num_stages: int) -> list[float]:
        """Seconds for which chunks and decodes of a request waited for steps, by stage of its way.

        Added up; of one that has just finished too. All 0 unless waits are measured.
        """
        waited_s = (REAL * num_stages)()
        _waits(self._engine, request, waited_s)
        return list(waited_s)

    def waiting(self, node: int) -> int:
        """Items that wait at a node: prompts or chunks of them, and decodes."""
        return int(_waiting(self._engine, node))

    def reset_statistics(self) -> None:
        """Begin to count now."""
        _reset_statistics(self._engine)

    def statistics(self) -> EngineStatistics:
        """Counts until now."""
        gaps = np.zeros(NUM_BUCKETS, dtype=np.int64)
        totals = _records(EngineStatistics, 1, whole=int, real=float)
        nodes = _records(NodeStatistics, self._num_nodes, whole=Counts, real=Floats)
        links = _records(LinkStatistics, self._num_links, whole=Counts, real=Floats)
        _statistics(self._engine, totals.ctypes.data, gaps, nodes.ctypes.data, links.ctypes.data)
        return EngineStatistics(
            **dict(zip(totals.dtype.names or (), totals[0].item(), strict=True)),
            gaps=gaps,
            nodes=NodeStatistics(**{name: nodes[name] for name in nodes.dtype.names or ()}),
            links=LinkStatistics(**{name: links[name] for name in links.dtype.names or ()}),
        )


def _records(
    kind: "type[DataclassInstance]", count: int, *, whole: Any, real: Any
) -> npt.NDArray[np.void]:
    """C structs of the fields of those two types, in their order."""
    numbers = {whole: np.int64, real: np.float64}
    declared = [(one.name, numbers[one.type]) for one in fields(kind) if one.type in numbers]
    return np.zeros(count, dtype=declared)


_new = function("simulator_new", POINTER, POINTER, I64, INTEGERS, I64, REALS)
_free = function("simulator_free", None, POINTER)
_add_link = function("simulator_add_link", I64, POINTER, I64, I64, REAL, REAL, I64, POINTER)
_admit = function("simulator_admit", I64, POINTER, I64, I64)
_begin = function("simulator_begin", I64, POINTER, I64, I64, I64, POINTER, I64, I64)
_give_up = function("simulator_give_up", None, POINTER, I64)
_set_grow_at = function("simulator_set_grow_at", None, POINTER, I64, I64)
_advance = function("simulator_advance", I64, POINTER, REAL, POINTER)
_now = function("simulator_now", REAL, POINTER)
_waits = function("simulator_waits", None, POINTER, I64, POINTER)
_waiting = function("simulator_waiting", I64, POINTER, I64)
_reset_statistics = function("simulator_reset_statistics", None, POINTER)
_statistics = function("simulator_statistics", None, POINTER, POINTER, INTEGERS, POINTER, POINTER)
