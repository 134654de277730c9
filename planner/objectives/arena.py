"""One set of nodes on which stages are searched, and the best stages known there."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace

from planner.capacity import held_by_largest
from planner.domain.placement import Placement
from planner.domain.rules import PlacementRules
from planner.objectives.stage_search import Stages, StageSearch
from planner.objectives.trial import Trials
from planner.placers.base import SearchOptions
from planner.placers.board import Board
from planner.placers.stage_patterns import search_stage_patterns
from planner.placers.stop import Stop
from planner.tuning.served import ArenaTuning as tuned


class Arena:
    """A component's nodes: seeded by stage patterns over a sweep of hop limits, then annealed."""

    def __init__(
        self,
        trials: Trials,
        *,
        names: Sequence[str],
        rules: PlacementRules,
        seed: int,
        survives: bool = False,
    ) -> None:
        self.names = frozenset(names) - frozenset(rules.pinned)
        self._problem = trials.problem
        self._rules = rules
        self._seed = seed
        self._rounds = 0
        self._search = StageSearch(
            trials.estimator, names=names, rules=rules, goal=trials.goal, survives=survives
        )
        self._known: dict[Stages, float] = {}
        self._seeds: dict[Stages, float] = {}  # what was known before the first round
        self._pool: dict[Stages, float] = {}  # what rounds begin at

    @property
    def best(self) -> Placement | None:
        """The best placement known; its value is `score`."""
        if not self._known:
            return None
        return self._search.placement_of(max(self._known, key=self._known.__getitem__))

    @property
    def score(self) -> float:
        return max(self._known.values(), default=0.0)

    def placements(self) -> list[Placement]:
        """The best known first."""
        ranked = sorted(self._known, key=self._known.__getitem__, reverse=True)
        return [self._search.placement_of(stages) for stages in ranked]

    def offer(self, placement: Placement) -> None:
        """Begin from it too, if it is stages."""
        stages = self._search.stages_of(placement)
        if stages is not None:
            _keep(self._known, stages, self._search.score(stages))

    def score_of(self, placement: Placement) -> float:
        """0 where it is not stages."""
        stages = self._search.stages_of(placement)
        return 0.0 if stages is None else self._search.score(stages)

    def seed_by_patterns(self, stop: Stop, *, further: Stop) -> None:
        """The most flow at a sweep of hop limits: the front of few hops against much flow.

        Some stages at least, before `stop`; others before `further` ends.
        """
        nodes = [node for node in self._problem.cluster.nodes if node.name in self.names]
        if not nodes:
            return
        apart = self._problem
        outside = {node.name for node in self._problem.cluster.nodes} - self.names
        if outside:
            apart = replace(apart, cluster=apart.cluster.without(outside))
        held = held_by_largest(apart)
        fewest = bisect_left(held, apart.model.num_layers, hi=len(held) - 1)
        most = min(len(nodes), self._problem.model.num_layers, self._rules.max_hops or len(nodes))
        limits = sorted(
            {min(most, max(fewest, round(fewest * share))) for share in tuned.HOP_LIMITS}
        )
        limits = [limits[len(limits) // 2], *limits, most]
        for limit in dict.fromkeys(limits):
            if stop.is_over() or (self._known and further.is_over()):
                return
            found = Board(
                apart,
                SearchOptions(rules=PlacementRules(max_hops=limit)),
                stop=stop.within(stop.left_s * tuned.PATTERNS_SHARE_OF_TIME),
            )
            search_stage_patterns(found, self._seed)
            if found.placement is not None:
                self.offer(found.placement)

    def start(self) -> None:
        """Start the first round, or restart from the same state; results so far stay known."""
        self._seeds = self._seeds or dict(self._known)
        self._pool = dict(self._seeds)

    def anneal(self, *, moves: int, hot: float) -> None:
        """One round, from the best since the last start or from another one."""
        if not self._pool:
            return
        ranked = sorted(self._pool, key=self._pool.__getitem__, reverse=True)
        start = ranked[(self._rounds // 2) % len(ranked)] if self._rounds % 2 else ranked[0]
        self._rounds += 1
        found = self._search.annealed(
            start, moves=moves, hot=hot, seed=self._seed * 1009 + self._rounds
        )
        _keep(self._pool, found.best, found.score)
        _keep(self._known, found.best, found.score)

    def walked_from(self, placement: Placement, *, walks: int) -> Iterator[Placement]:
        """Placements at the ends of short random walks from it, if it consists of stages."""
        start = self._search.stages_of(placement)
        if start is None:
            return
        for number in range(walks):
            self._rounds += 1
            yield self._search.placement_of(
                self._search.walked(
                    start,
                    moves=tuned.WALK_MOVES[number % len(tuned.WALK_MOVES)],
                    hot=tuned.WALK_HOTNESS,
                    seed=self._seed * 1009 + self._rounds,
                )
            )


def _keep(known: dict[Stages, float], stages: Stages, score: float) -> None:
    if score <= 0:
        return
    known[stages] = score
    if len(known) > tuned.KEPT:
        del known[min(known, key=known.__getitem__)]
