"""Better placements close to a running one: few layers loaded where they are not held yet.

`climb` changes one node at a time and measures each change by the objective, so it sees links, hops
and shared bandwidth. `planner.placers.range_annealing` is far faster, estimates what links pass and
sees neither hops nor shared bandwidth.
"""

import random
from collections.abc import Callable, Iterator

from planner.capacity import allowed_limits
from planner.domain.placement import LayerRange, Placement
from planner.domain.problem import Problem
from planner.domain.rules import PlacementRules


def moved_layers(running: Placement, placement: Placement) -> int:
    """Layers that nodes must load: held in `placement` and not in `running`."""
    return sum(held.beyond(running.layers.get(name)) for name, held in placement.layers.items())


def climb(
    problem: Problem,
    running: Placement,
    start: Placement,
    *,
    rules: PlacementRules,
    budget_layers: int,
    value_of: Callable[[Placement], float],
    tries: int,
    seed: int,
) -> Iterator[Placement]:
    """Yields each improvement that `tries` random changes of one node find, in order."""
    chance = random.Random(seed)  # noqa: S311 - a search, not a secret
    names = [node.name for node in problem.cluster.nodes if node.name not in rules.pinned]
    best, best_value = start, value_of(start)
    for _ in range(tries if names else 0):
        name = chance.choice(names)
        held = _other_range(problem, best, name, rules=rules, chance=chance)
        if held is None:
            changed = best.without({name})
        else:
            component = chance.randrange(len(best.components)) if best.components else 0
            changed = best.with_node(name, held, component=component)
        if changed == best or moved_layers(running, changed) > budget_layers:
            continue
        value = value_of(changed)
        if value > best_value * (1 + 1e-9):
            best, best_value = changed, value
            yield best


def _other_range(
    problem: Problem,
    placement: Placement,
    name: str,
    *,
    rules: PlacementRules,
    chance: random.Random,
) -> LayerRange | None:
    """A range that meets others where they begin and end, as the node's memory allows."""
    limits = allowed_limits(problem, name, rules)
    limit, num_layers = limits.middle, problem.model.num_layers
    ranges = [held for other, held in placement.layers.items() if other != name]
    if limit == 0 or not ranges:
        return placement.layers.get(name)
    cuts = sorted({0, problem.model.num_layers} | {cut for r in ranges for cut in (r.first, r.end)})
    first = chance.choice(cuts[:-1])
    ends = [cut for cut in cuts if first < cut <= first + limit]
    end = chance.choice([*ends, min(first + limit, problem.model.num_layers)])
    held = LayerRange(first=first, end=end)
    return held if limits.allow(held, num_layers=num_layers) else placement.layers.get(name)
