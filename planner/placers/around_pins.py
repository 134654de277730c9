"""Stages that fit around pinned ranges, so that ranges meet where partial inference is off.

Free nodes are in an order; a stage takes the next ones. A pinned node counts only in a stage of
exactly its range, which then needs fewer other nodes, or none. Pinned nodes need not be used.
In the first and the last stage a node counts only if it has memory for that end of the model, too.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from planner.bounds.knapsack import knapsack_bound_tokens_per_s
from planner.capacity import (
    LayerLimits,
    allowed_limits,
    throughput_tokens_per_s,
)
from planner.domain.placement import LayerRange, Placement
from planner.domain.problem import Problem
from planner.domain.rules import PlacementRules
from planner.speed_table import speeds_by_layers

_RELATIVE_WIDTH = 1e-3
# Speeds are added in floats: a stage of exactly the flow must not fail by the last bit.
_REACHES = 1 - 1e-12

_Counts = NDArray[np.int64]


class AroundPins:
    """Lays orders of nodes around the pins of one problem; links count for nothing here."""

    def __init__(self, problem: Problem, rules: PlacementRules) -> None:
        self._problem = problem
        self._num_layers = problem.model.num_layers
        self._pinned = dict(rules.pinned)
        self._bound = knapsack_bound_tokens_per_s(problem)
        self._limits: dict[str, LayerLimits] = {
            node.name: allowed_limits(problem, node.name, rules)
            for node in problem.cluster.nodes
            if node.name not in self._pinned
        }
        limits = self._limits
        self._longest_free = max((one.middle for one in limits.values()), default=0)
        self._ends_cost_layers = any(min(one) < one.middle for one in limits.values())
        speeds_NJ = speeds_by_layers(problem, list(limits), list(limits.values()))
        self._speeds_of = dict(zip(limits, speeds_NJ.tolist(), strict=True))
        self._pinned_speed: dict[tuple[int, int], float] = {}
        for name, pin in self._pinned.items():
            place = pin.first, len(pin)
            speed = throughput_tokens_per_s(problem, name, len(pin))
            self._pinned_speed[place] = self._pinned_speed.get(place, 0.0) + speed
        # A stage without free nodes or a hop of its own still counts as a hop.
        self._hop_columns = (
            1 if rules.max_hops is None else min(rules.max_hops, self._num_layers) + 1
        )

    def first_orders(self) -> Iterator[list[str]]:
        """Orders to begin with: region by region, and kind by kind."""
        node = self._problem.cluster.node
        names = list(self._speeds_of)
        yield sorted(names, key=lambda name: (node(name).region, node(name).compute_profile))
        yield sorted(names, key=lambda name: (node(name).compute_profile, node(name).region))

    def order_of(self, placement: Placement) -> list[str]:
        """The free nodes by what they hold there, idle ones last."""
        past = self._num_layers

        def place(name: str) -> tuple[int, int]:
            held = placement.layers.get(name)
            return (past, past) if held is None else (held.first, held.end)

        return sorted(self._speeds_of, key=place)

    def orders_of(self, placement: Placement) -> Iterator[list[str]]:
        """The order of nodes; if the model's ends cost layers, also with roomy stages there.

        A stage is roomy if its nodes lose few layers at the ends of the model.
        """
        order = self.order_of(placement)
        yield order
        if not self._ends_cost_layers:
            return
        stages: dict[LayerRange | None, list[str]] = {}
        for name in order:
            stages.setdefault(placement.layers.get(name), []).append(name)
        idle = stages.pop(None, [])
        if not stages:
            return
        numbers = range(len(stages))
        members = list(stages.values())

        def lost(number: int, at: int) -> float:
            return max(
                1 - self._limits[name][at] / max(1, self._limits[name].middle)
                for name in members[number]
            )

        first = min(numbers, key=lambda number: (lost(number, 1), number))
        last = min(numbers, key=lambda number: (number == first, lost(number, 2), -number))
        middle = [number for number in numbers if number not in (first, last)]
        ends = [first] if first == last else [first, last]
        for turned in dict.fromkeys((tuple(ends), tuple(reversed(ends)))):
            numbered = [turned[0], *middle, *turned[1:]]
            yield [name for number in numbered for name in members[number]] + idle

    def laid(self, order: Sequence[str], *, above_tokens_per_s: float) -> Placement | None:
        """Stages of the highest flow above the given one, pins in place; None if there are none."""
        sums = self._sums(order)
        low = above_tokens_per_s * (1 + _RELATIVE_WIDTH) + _RELATIVE_WIDTH
        best = self._stages(sums, low)
        high = self._bound
        while best is not None and high - low > _RELATIVE_WIDTH * high:
            middle = (low + high) / 2
            found = self._stages(sums, middle)
            if found is None:
                high = middle
            else:
                best, low = found, middle
        if best is None:
            return None
        layers = {
            name: held
            for held, begin, end in best
            for name in order[begin:end]
            if self._speeds_of[name][len(held)] > 0
            and self._limits[name].allow(held, num_layers=self._num_layers)
        }
        return Placement(layers=layers | self._pinned)

    def _sums(self, order: Sequence[str]) -> list[NDArray[np.float64]]:
        """`[e][j, i]`: the speed of the first i nodes together, each with j layers.

        e is the index of `LayerLimits`: the ends of the model among the layers.
        """
        sums = np.zeros((self._longest_free + 1, len(order) + 1))
        if len(order) == 0:
            return [sums] * 4
        speeds_NJ = np.array([self._speeds_of[name] for name in order])
        sums[:, 1:] = np.cumsum(speeds_NJ.T, axis=1)
        found = [sums]
        limits_NE = np.array([self._limits[name] for name in order])
        layers_J = np.arange(self._longest_free + 1)
        for at in (1, 2, 3):
            if not self._ends_cost_layers:
                found.append(sums)
                continue
            there = np.where(layers_J <= limits_NE[:, at, None], speeds_NJ, 0.0)
            at_end = np.zeros_like(sums)
            at_end[:, 1:] = np.cumsum(there.T, axis=1)
            found.append(at_end)
        return found

    def _stages(
        self, sums_E: list[NDArray[np.float64]], flow: float
    ) -> list[tuple[LayerRange, int, int]] | None:
        """Ranges, each with the begin and the end of its nodes in the order; None: not this flow.

        By dynamic programming: the fewest nodes of the order that carry layers [0, x), for every
        number of hops where these are limited.
        """
        num_nodes = sums_E[0].shape[1] - 1
        out_of_nodes = num_nodes + 1
        used_XH: _Counts = np.full((self._num_layers + 1, self._hop_columns), out_of_nodes)
        came_by_XH: _Counts = np.zeros_like(used_XH)
        used_XH[0, 0] = 0
        longest = max([self._longest_free, *(layers for _, layers in self._pinned_speed)])
        for x in range(self._num_layers):
            if used_XH[x].min() >= out_of_nodes:
                continue
            for layers in range(1, min(longest, self._num_layers - x) + 1):
                sums = sums_E[(x == 0) + 2 * (x + layers == self._num_layers)]
                after = self._used_after(used_XH[x], sums, x=x, layers=layers, flow=flow)
                if self._hop_columns > 1:
                    after = np.concatenate(([out_of_nodes], after[:-1]))
                fewer = after < used_XH[x + layers]
                used_XH[x + layers][fewer] = after[fewer]
                came_by_XH[x + layers][fewer] = layers
        hops = int(used_XH[-1].argmin())
        if used_XH[-1, hops] >= out_of_nodes:
            return None
        stages: list[tuple[LayerRange, int, int]] = []
        end = self._num_layers
        while end > 0:
            first = end - int(came_by_XH[end, hops])
            before = hops - 1 if self._hop_columns > 1 else hops
            stages.append(
                (
                    LayerRange(first=first, end=end),
                    int(used_XH[first, before]),
                    int(used_XH[end, hops]),
                )
            )
            end, hops = first, before
        return stages

    def _used_after(
        self, used_H: _Counts, sums: NDArray[np.float64], *, x: int, layers: int, flow: float
    ) -> _Counts:
        """Nodes used once a stage of `layers` layers from x carries the flow as well."""
        missing = flow * _REACHES - self._pinned_speed.get((x, layers), 0.0)
        if missing <= 0:
            return used_H
        out_of_nodes = sums.shape[1]
        if layers > self._longest_free:
            return np.full_like(used_H, out_of_nodes)
        reached = sums[layers]
        known = np.minimum(used_H, out_of_nodes - 1)
        after: _Counts = np.searchsorted(reached, reached[known] + missing)
        return np.where(used_H < out_of_nodes, after, out_of_nodes)
