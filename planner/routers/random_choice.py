"""Random routing: any open hop, all alike (the baseline of Helix §6.7)."""

import random
from collections.abc import Sequence

from planner.routers.walk import Turns


class RandomChoice:
    """Draws from the random source that it is given."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def take(self, open_candidates: Sequence[str]) -> str:
        """One of the candidates, each as likely as the others."""
        return self._rng.choice(open_candidates)

    def take_over(self, before: Turns) -> None:
        """Chance has no memory."""
