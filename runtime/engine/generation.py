"""One generation as a stage serves it, and what holds the layers of all of them."""

from collections.abc import Callable, Collection, Iterable
from collections.abc import Sequence as Items
from dataclasses import dataclass
from typing import Protocol

from runtime.engine.pages import BlockTable
from runtime.protocol.control import PeerAddress, StageAssignment

# (done_bytes, total_bytes); may raise to end what it is told of
Progress = Callable[[int, int], None]


class NoRoom(Exception):
    """Layers do not fit beside what is held; they may in a process of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """Which layers it runs here, and the peers it runs with."""

    number: int
    layers: range
    peers: tuple[PeerAddress, ...] = ()

    @classmethod
    def of(cls, assignment: StageAssignment) -> "Generation":
        return cls(
            number=assignment.generation,
            layers=range(assignment.first, assignment.end),
            peers=assignment.peers,
        )


class Holdings(Protocol):
    """Layers and pages of a backend, which change while it runs steps.

    Used by the thread that runs steps, between them, but for `load`.
    """

    @property
    def held(self) -> Collection[int]:
        """The layers whose weights are here."""

    def pages_beside(self, ranges: Items[range]) -> int:
        """Pages that fit beside the layers of all `ranges`, each held once.

        Raises NoRoom when the longest request of one of them would not fit.
        """

    def resize(self, pages: int, tables: Iterable[BlockTable]) -> None:
        """Have so many pages; `tables` are all that hold some. What is in them stays.

        Raises NoFreePages, changing nothing, when they hold more.
        """

    def load(self, runs: Items[range], progress: Progress) -> Callable[[], None]:
        """Read the layers of `runs`, by a thread of its own; gives what puts them into place.

        Both raise NoRoom and CannotRun, the former what `progress` raises too.
        """

    def keep(self, ranges: Items[range]) -> None:
        """Forget layers that are in none of `ranges`, which generations run as a whole."""


def runs_of(layers: Iterable[int]) -> list[range]:
    """The same layers as ranges, as few as can be, in order."""
    runs: list[range] = []
    for layer in sorted(layers):
        if runs and runs[-1].stop == layer:
            runs[-1] = range(runs[-1].start, layer + 1)
        else:
            runs.append(range(layer, layer + 1))
    return runs
