"""A plan's estimate: its components' fixed points."""

import math
from dataclasses import dataclass, replace

from planner.domain.flow import Flow
from planner.domain.placement import Placement
from planner.domain.problem import Problem
from planner.domain.serving_policy import ServingPolicy
from planner.estimate.fixed_point import Sustained, sustained
from planner.estimate.lengths import LengthStatistics, lengths_like_published
from planner.estimate.load import NodeFigures, Spread, loads_of
from planner.estimate.model import model_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Estimated throughput of a plan under a policy while requests always wait.

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
        """As `of`, with this spread of requests."""
        components = tuple(
            sustained(self.model, load, self.figures.tables)
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
