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
from planner.estimate.load import Load, NodeFigures, Tables, loads_of
from planner.estimate.model import Model, model_of


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
        components = tuple(
            sustained_of(self.model, load, self.figures.tables)
            for load in loads_of(self.figures, placement, flow)
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
    numbers = model.as_array()
    nodes, edges = len(load.share_N), len(load.share_E)
    work, result = np.empty(6 * nodes + edges), np.empty(4)
    arrays = (
        load.group_N,
        load.table_N,
        load.share_N,
        load.layers_N,
        load.step_s_N,
        load.room_N,
        load.decode_limit_N,
        load.tail_E,
        load.head_E,
        load.share_E,
        load.bandwidth_E,
        load.latency_E,
        load.crowding_E,
        tables.decode_s_KB,
        tables.slope_s_K,
    )
    loops.sustained_load(
        numbers.ctypes.data,
        nodes,
        edges,
        tables.decode_s_KB.shape[1],
        *(array.ctypes.data for array in arrays),
        load.return_s,
        work.ctypes.data,
        result.ctypes.data,
    )
    return Sustained(*result.tolist())
