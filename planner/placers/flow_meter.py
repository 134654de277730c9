"""The exact max flow of many placements of one problem, when only its value is asked for."""

import numpy as np

from planner.capacity import throughput_tokens_per_s
from planner.domain.cluster import COORDINATOR
from planner.domain.placement import Placement
from planner.domain.problem import Problem
from planner.flow_graph import check_placement
from planner.max_flow import UNITS_PER_TOKEN, max_flow
from planner.placers.base import SearchOptions
from planner.placers.compiled.loops import is_compiled, max_flow_value
from planner.placers.link_matrix import link_capacities_tokens_per_s

_SOURCE, _SINK = 0, 1
# What nothing computes: cuts capacities so that they fit into 63 bits in flow units.
_AMPLE_TOKENS_PER_S = 2.0**32


class FlowMeter:
    """Measures placements by the same graph and in the same units as `planner.max_flow`.

    That module measures for it where loops are not compiled, hops are limited or bandwidth is
    shared.
    """

    def __init__(self, problem: Problem, options: SearchOptions) -> None:
        self._problem = problem
        self._options = options
        names = [node.name for node in problem.cluster.nodes]
        self._number_of = {name: number for number, name in enumerate(names)}
        self._is_plain = (
            is_compiled() and options.rules.max_hops is None and not problem.cluster.shared
        )
        if self._is_plain:
            capacities = link_capacities_tokens_per_s(problem, [*names, COORDINATOR])
            ample = np.minimum(capacities, _AMPLE_TOKENS_PER_S)
            self._links = (ample * UNITS_PER_TOKEN).astype(np.int64)

    def tokens_per_s(self, placement: Placement) -> float:
        """The max flow of a placement; raises InvalidPlacement."""
        if self._is_plain:
            return self._measure(placement)
        return max_flow(
            self._problem,
            placement,
            partial_inference=self._options.partial_inference,
            max_hops=self._options.rules.max_hops,
        ).value_tokens_per_s

    def _measure(self, placement: Placement) -> float:
        """Vertices: source, sink, then an entry and an exit for every node that holds layers."""
        check_placement(self._problem, placement)
        held = list(placement.layers.items())
        if not held:
            return 0.0
        ids = np.array([self._number_of[name] for name, _ in held])
        firsts = np.array([layers.first for _, layers in held])
        ends = np.array([layers.end for _, layers in held])
        speeds = [
            int(
                min(throughput_tokens_per_s(self._problem, name, len(layers)), _AMPLE_TOKENS_PER_S)
                * UNITS_PER_TOKEN
            )
            for name, layers in held
        ]
        if self._options.partial_inference:
            connects = (firsts[None, :] <= ends[:, None]) & (ends[:, None] < ends[None, :])
        else:
            connects = firsts[None, :] == ends[:, None]
        if placement.components:
            component = np.array([placement.component_of(name) for name, _ in held])
            connects &= component[None, :] == component[:, None]
        entries, exits = 2 + 2 * np.arange(len(held)), 3 + 2 * np.arange(len(held))
        before, after = np.nonzero(connects)
        opening = np.flatnonzero(firsts == 0)
        closing = np.flatnonzero(ends == self._problem.model.num_layers)
        return (
            max_flow_value(
                num_vertices=2 + 2 * len(held),
                tails=np.concatenate(
                    (entries, exits[before], np.full(len(opening), _SOURCE), exits[closing])
                ),
                heads=np.concatenate(
                    (exits, entries[after], entries[opening], np.full(len(closing), _SINK))
                ),
                capacities=np.concatenate(
                    (
                        np.array(speeds, dtype=np.int64),
                        self._links[ids[before], ids[after]],
                        self._links[-1, ids[opening]],
                        self._links[ids[closing], -1],
                    )
                ),
                source=_SOURCE,
                sink=_SINK,
            )
            / UNITS_PER_TOKEN
        )
