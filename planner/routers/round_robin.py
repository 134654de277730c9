"""Round robin, plain and weighted: turns in a fixed order, blind to load."""

from collections.abc import Mapping, Sequence

from planner.routers.walk import Turns

# Turns in one weighted round: on average so many per candidate, by its share.
_TURNS_PER_CANDIDATE = 8


class RoundRobin:
    """One turn after the other; closed candidates are passed over.

    With `turns_of`, a candidate takes so many turns in a row before the next one's.
    """

    def __init__(self, turns_of: Mapping[str, int]) -> None:
        self._turns_of = dict(turns_of)
        self._order = tuple(turns_of)
        self._at = 0
        self._taken = 0

    def take(self, open_candidates: Sequence[str]) -> str:
        """The next candidate in turn; `open_candidates` is a non-empty part of all."""
        if self._taken >= self._turns_of[self._order[self._at]]:
            self._next()
        while self._order[self._at] not in open_candidates:
            self._next()
        self._taken += 1
        return self._order[self._at]

    def take_over(self, before: Turns) -> None:
        """Go on with the candidate that was at its turns, if it is still one."""
        if isinstance(before, RoundRobin) and before._order[before._at] in self._order:
            self._at = self._order.index(before._order[before._at])
            self._taken = before._taken

    def _next(self) -> None:
        self._at = (self._at + 1) % len(self._order)
        self._taken = 0


def plain(weights: Mapping[str, float]) -> RoundRobin:
    """Everyone in turn, whatever their weights."""
    return RoundRobin(dict.fromkeys(weights, 1))


def weighted(weights: Mapping[str, float]) -> RoundRobin:
    """Everyone for as many turns in a row as its weight is worth, at least one: in bursts."""
    round_length = _TURNS_PER_CANDIDATE * len(weights)
    total = sum(weights.values())
    return RoundRobin(
        {name: max(1, round(round_length * weight / total)) for name, weight in weights.items()}
    )
