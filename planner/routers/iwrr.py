"""Interleaved weighted round robin: Helix's turns at every vertex of the flow (Helix §5.1)."""

from collections.abc import Collection, Mapping

from planner.routers.walk import Turns


class InterleavedWeightedRoundRobin:
    """Turns among weighted candidates, spread evenly and without randomness.

    Each turn every open candidate earns its share and the taken one pays 1. Among those with
    something earned the earliest deadline is first, which keeps every candidate within one
    turn of its share. A closed candidate earns nothing, so that it cannot swallow the traffic
    when it opens again.
    """

    def __init__(self, weights: Mapping[str, float]) -> None:
        self._weights = {name: weight for name, weight in weights.items() if weight > 0}
        self._credit = dict.fromkeys(self._weights, 0.0)

    @property
    def candidates(self) -> tuple[str, ...]:
        return tuple(self._weights)

    def take(self, open_candidates: Collection[str]) -> str:
        """The next candidate in turn; `open_candidates` is a non-empty part of all."""
        if len(open_candidates) == 1:  # would earn 1 and pay 1
            return next(iter(open_candidates))
        weights, credit = self._weights, self._credit
        total = sum([weights[name] for name in open_candidates])
        for name in open_candidates:
            credit[name] += weights[name] / total
        taken = min(
            [
                (credit[name] <= 1e-9, (1.0 - credit[name]) / weights[name], name)
                for name in open_candidates
            ]
        )[-1]
        credit[taken] -= 1.0
        return taken

    def take_over(self, before: Turns) -> None:
        """Keep what the candidates of before had earned; all credits together stay zero."""
        if not isinstance(before, InterleavedWeightedRoundRobin):
            return
        self._credit = {name: before._credit.get(name, 0.0) for name in self._weights}
        gone = sum(before._credit[name] for name in before._credit.keys() - self._weights.keys())
        total = sum(self._weights.values())
        for name, weight in self._weights.items():
            self._credit[name] += gone * weight / total


def with_flow(routing_weights: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """The weights above 0."""
    return {
        source: {target: weight for target, weight in targets.items() if weight > 0}
        for source, targets in routing_weights.items()
    }
