"""A plan's estimate: its components' fixed points, compiled where the package was."""

import math
from dataclasses import dataclass, replace

import numpy as np

from planner.domain.flow import Flow
from planner.domain.placement import Placement
from planner.domain.problem import Problem
from planner.domain.serving_policy import ServingPolicy
from planner.estimate.compiled.library import library
from planner.estimate.fixed_point import Sustained, sustained
from planner.estimate.lengths import LengthStatistics, lengths_like_published
from planner.estimate.load import Load, NodeFigures, Spread, Tables, loads_of
from planner.estimate.model import Model, model_of
from planner.native import Packed


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a plan sustains under a policy while requests always wait.

    TTFT and TPOT are means over requests, without the wait for KV room. `held` is the number of
    requests in flight.
    """

    decode_tokens_per_s: float
    ttft_s: float
    tpot_s: float
    held: float
    components: tuple[Sustained, ...]


class Estimator:
    """Estimates many plans of one problem under one policy."""

    def __init__(
        self,
        problem: Problem,
        *,
        policy: ServingPolicy,
        lengths: LengthStatistics | None = None,
        ttft_limit_s: float = math.inf,
        tpot_limit_s: float = math.inf,
    ) -> None:
        """`lengths` default to the workload's means, spread like the published conversations'.

        The limits are on mean TTFT and TPOT: requests are let in no faster than they allow.
        """
        self.lengths = lengths or lengths_like_published(problem.workload)
        self.model = replace(
            model_of(
                policy,
                spec=problem.model,
                lengths=self.lengths,
                nodes=len(problem.cluster.nodes),
            ),
            ttft_limit_s=ttft_limit_s,
            tpot_limit_s=tpot_limit_s,
        )
        self.figures = NodeFigures(problem, policy=policy, lengths=self.lengths, model=self.model)

    def of(self, placement: Placement, flow: Flow) -> Estimate:
        """`flow` is the placement's, as the routing weights spread it (`balanced_flow`)."""
        return self.of_spread(
            placement, {(edge.source, edge.target): edge.flow_tokens_per_s for edge in flow.edges}
        )

    def of_spread(self, placement: Placement, spread: Spread) -> Estimate:
        """As `of`, for requests that are spread so."""
        components = tuple(
            sustained_of(self.model, load, self.figures.tables)
            for load in loads_of(self.figures, placement, spread)
        )
        whole = sum(part.decode_tokens_per_s for part in components)
        if whole <= 0:
            return Estimate(
                decode_tokens_per_s=0.0, ttft_s=0.0, tpot_s=0.0, held=0.0, components=components
            )
        return Estimate(
            decode_tokens_per_s=whole,
            ttft_s=sum(part.decode_tokens_per_s * part.ttft_s for part in components) / whole,
            tpot_s=sum(part.decode_tokens_per_s * part.round_trip_s for part in components) / whole,
            held=sum(part.held for part in components),
            components=components,
        )


def sustained_of(model: Model, load: Load, tables: Tables) -> Sustained:
    """`fixed_point.sustained`, compiled where that is possible; the same to the last bit."""
    loops = library()
    if loops is None:
        return sustained(model, load, tables)
    nodes, edges = len(load.share_N), len(load.share_E)
    work, result = np.empty(6 * nodes + edges), np.empty(4)
    packed = Packed(
        nodes=nodes,
        edges=edges,
        table_size=tables.decode_s_KB.shape[1],
        group=load.group_N,
        table=load.table_N,
        tails=load.tail_E,
        heads=load.head_E,
        share=load.share_N,
        layers=load.layers_N,
        step_s=load.step_s_N,
        room=load.room_N,
        decode_limit=load.decode_limit_N,
        edge_share=load.share_E,
        bandwidth=load.bandwidth_E,
        latency=load.latency_E,
        crowding=load.crowding_E,
        decode_s=tables.decode_s_KB,
        decode_slope=tables.slope_s_K,
        return_s=load.return_s,
    )
    numbers = model.as_array()
    loops.sustained(numbers.ctypes.data, packed.address, work.ctypes.data, result.ctypes.data)
    return Sustained(*result.tolist())
