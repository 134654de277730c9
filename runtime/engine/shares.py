"""What coordinators get of a stage's pages when together they want more than there are.

The first that asks gets them, as long as none is refused. A coordinator that is, and has less than
an equal share, is next: what it asked for is kept from the others as they end requests. So is the
only request of one, however large. Of several that are next, the one that was restarted most often
goes first, the same on every stage that they pass.
"""

from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import dataclass

from runtime.engine.running_requests import RunningRequests
from runtime.engine.sequence import RequestKey, Sequence

# A refused request is sent again about once a second. One that is not has gone elsewhere.
_KEPT_FOR_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claim:
    key: RequestKey
    pages: int
    until_s: float


class Shares:
    """Owns how pages are divided among coordinators; admission and reports ask it.

    `coordinators` says how many there are, `clock` is in seconds.
    """

    def __init__(
        self,
        running_requests: RunningRequests,
        *,
        coordinators: Callable[[], int],
        clock: Callable[[], float],
    ) -> None:
        self._running_requests = running_requests
        self._coordinators = coordinators
        self._clock = clock
        self._claims: dict[str, _Claim] = {}  # by coordinator

    def held(self) -> dict[str, int]:
        """Pages that requests of each coordinator hold; one that several share counts for each."""
        held: dict[str, int] = {}
        for sequence in self._running_requests.by_key.values():
            owner = sequence.route.coordinator
            held[owner] = held.get(owner, 0) + sequence.table.blocks * sequence.table.num_layers
        return held

    def kept_from(self, sequence: Sequence) -> int:
        """Pages that are another coordinator's next."""
        own = _turn(sequence.key)
        owner, now_s = sequence.route.coordinator, self._clock()
        return sum(
            claim.pages
            for name, claim in self._claims.items()
            if name != owner and claim.until_s > now_s and _turn(claim.key) < own
        )

    def refuse(self, sequence: Sequence, *, pages: int, total: int) -> None:
        """It was refused: of `total` pages, the `pages` it asked for are not there."""
        owner, now_s = sequence.route.coordinator, self._clock()
        if self._coordinators() < 2 or self._is_before(owner, sequence.key, now_s=now_s):
            return
        held = self.held().get(owner, 0)
        if held == 0 or held + pages <= total // self._coordinators():
            self._claims[owner] = _Claim(key=sequence.key, pages=pages, until_s=now_s + _KEPT_FOR_S)

    def admit(self, sequence: Sequence) -> None:
        """It has its pages, and needs nothing kept."""
        owner = sequence.route.coordinator
        claim = self._claims.get(owner)
        if claim is not None and claim.key.request == sequence.key.request:
            del self._claims[owner]

    def forget(self, coordinator: str) -> None:
        """It is lost."""
        self._claims.pop(coordinator, None)

    def elsewhere(self, names: Items[str], *, total: int) -> dict[str, int]:
        """Of `total` pages, those that each coordinator cannot have: others hold them, or are next.

        Its own share is never among them, so that it asks for it.
        """
        if len(names) < 2:
            return dict.fromkeys(names, 0)
        now_s, held = self._clock(), self.held()
        for name, claim in self._claims.items():
            if claim.until_s > now_s:
                held[name] = held.get(name, 0) + claim.pages
        most = total - total // self._coordinators()
        return {name: min(most, sum(held.values()) - held.get(name, 0)) for name in names}

    def _is_before(self, owner: str, key: RequestKey, *, now_s: float) -> bool:
        """Whether another request of this coordinator goes before that one."""
        claim = self._claims.get(owner)
        if claim is None or claim.until_s <= now_s or claim.key.request == key.request:
            return False
        return _turn(claim.key) < _turn(key)


def _turn(key: RequestKey) -> tuple[int, int]:
    """Those that were restarted more often come first."""
    return -key.epoch, key.request
