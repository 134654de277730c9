"""A placement problem: a model, a workload, and the cluster to serve it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Annotated

from planner.domain.cluster import Cluster
from planner.domain.errors import InvalidProblem
from planner.domain.limits import (
    MAX_CLUSTER_TOKENS_PER_S,
    MAX_MEAN_TOKENS,
    MIN_TOKENS,
    POSITIVE,
    Name,
    Range,
    check,
    check_fields,
)
from planner.domain.model_spec import ModelSpec
from planner.domain.profile import ComputeProfile

_MeanTokens = Annotated[float, POSITIVE, Range(MIN_TOKENS, MAX_MEAN_TOKENS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Mean lengths of the requests to be served, in tokens."""

    mean_prompt_tokens: _MeanTokens
    mean_output_tokens: _MeanTokens

    def __post_init__(self) -> None:
        check_fields(self, "workload.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Everything a placement is computed from; the content of a `helixweb.problem/1` file."""

    name: Name
    model: ModelSpec
    workload: Workload
    compute_profiles: Mapping[str, ComputeProfile]
    cluster: Cluster
    source: str = ""

    def __post_init__(self) -> None:
        for node in self.cluster.nodes:
            if node.compute_profile not in self.compute_profiles:
                known = ", ".join(sorted(self.compute_profiles)) or "none"
                raise InvalidProblem(
                    f"node {node.name!r}: compute profile {node.compute_profile!r} is unknown; "
                    f"add it to compute_profiles or use one of: {known}"
                )
        profiles = [self.compute_profiles[node.compute_profile] for node in self.cluster.nodes]
        check(
            f"the largest tokens_per_s of all {len(profiles)} nodes together",
            sum(max(profile.tokens_per_s, default=0.0) for profile in profiles),
            Range(0, MAX_CLUSTER_TOKENS_PER_S),
        )

    def only(self, names: Collection[str]) -> "Problem":
        """The problem on these of its nodes."""
        others = {node.name for node in self.cluster.nodes}.difference(names)
        return replace(self, cluster=self.cluster.without(others))

    def profile_of(self, node_name: str) -> ComputeProfile:
        """The compute profile of a node; raises KeyError for an unknown node."""
        return self.compute_profiles[self.cluster.node(node_name).compute_profile]

    def price_per_hour(self, node_name: str) -> float | None:
        """The node's own price, else its profile's; None where neither is known."""
        own = self.cluster.node(node_name).price_per_hour
        return self.profile_of(node_name).price_per_hour if own is None else own
