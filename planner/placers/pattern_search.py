"""The highest flow for which stages can be chosen: bisection, first fractional, then whole."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from planner.placers.pattern_choice import choose_stages
from planner.placers.patterns import PatternPool, StageNodes
from planner.placers.stages import filled_stages
from planner.placers.stop import ProgramLimits

_RELATIVE_STEP = 5e-4
_FIRST_STEP_DOWN = 0.0025
_MOST_STEP_DOWN = 0.3
_LEAST_SHARE = 1e-3  # of the highest flow in question; stages that carry less are not looked for
# Of one search. The published clusters take less than 1000; of chains of regions, those that find
# anything on 100 to 1000 generated nodes do so within 8000.
_MOST_PRICED = 8000
_WHOLE = 1 - 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundStages:
    """Stages and the flow that each of them carries, links counted as their families count them."""

    stages: tuple[StageNodes, ...]
    tokens_per_s: float
    solver: str


def improving_stages(
    pool: PatternPool,
    *,
    num_layers: int,
    above_tokens_per_s: float,
    below_tokens_per_s: float,
    limits: ProgramLimits,
) -> Iterator[FoundStages]:
    """Ever better stages between the two flows, until no better ones can be chosen or time ends."""
    if below_tokens_per_s <= above_tokens_per_s or not pool.kinds:
        return

    def should_stop() -> bool:
        return limits.stop.is_over() or pool.num_priced >= _MOST_PRICED

    low = above_tokens_per_s
    high = _fractional_limit(
        pool, num_layers=num_layers, low=low, high=below_tokens_per_s, should_stop=should_stop
    )
    least = max(low, _LEAST_SHARE * below_tokens_per_s)
    step = _FIRST_STEP_DOWN
    target, has_found = high * (1 - _RELATIVE_STEP), False
    while high - low > _RELATIVE_STEP * high and target > least and not should_stop():
        target = max(target, low * (1 + _RELATIVE_STEP / 2))
        found = None
        most = pool.most_layers(target, needed=num_layers, should_stop=should_stop)
        if most >= num_layers * _WHOLE:
            choice = choose_stages(
                pool,
                flow=target,
                num_layers=num_layers,
                limits=limits,
                should_stop=should_stop,
            )
            if choice.stages is not None:
                stages = filled_stages(pool.kinds, choice.stages, num_layers=num_layers)
                found = FoundStages(
                    stages=stages,
                    tokens_per_s=pool.carries(stages),
                    solver=choice.solver,
                )
        if found is not None:
            yield found
            low, has_found = max(target, found.tokens_per_s), True
            target = (low + high) / 2
        else:
            high = target
            step = min(2 * step, _MOST_STEP_DOWN)
            target = (low + high) / 2 if has_found else target * (1 - step)


def _fractional_limit(
    pool: PatternPool,
    *,
    num_layers: int,
    low: float,
    high: float,
    should_stop: Callable[[], bool],
) -> float:
    """The highest flow whose fractional stages hold every layer, from above."""
    enough = num_layers * _WHOLE
    if pool.most_layers(high, enough=enough, should_stop=should_stop) >= enough:
        return high
    least = max(low, _LEAST_SHARE * high)
    while high - low > _RELATIVE_STEP * high and high > least and not should_stop():
        middle = (low + high) / 2
        if pool.most_layers(middle, enough=enough, should_stop=should_stop) >= enough:
            low = middle
        else:
            high = middle
    return high
