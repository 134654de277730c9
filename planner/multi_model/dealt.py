"""A cluster dealt out to models, each planned on its own nodes by the ordinary search."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from planner.domain.placement import Placement
from planner.domain.plan import Plan
from planner.multi_model.deal import Counts, Kind
from planner.multi_model.shares import ModelShare, served_by
from planner.placers.base import CancelToken
from planner.plan_options import PlanOptions
from planner.planning import NoPlacementFound, compute_plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Dealt:
    """Every model's nodes and plan, in the models' order."""

    shares: tuple[ModelShare, ...]
    nodes: tuple[frozenset[str], ...]
    plans: tuple[Plan, ...]

    @property
    def levels_tokens_per_s(self) -> tuple[float, ...]:
        """Tokens/s of each model, by flow or estimate, over its weight."""
        return tuple(
            served_by(plan) / share.weight
            for plan, share in zip(self.plans, self.shares, strict=True)
        )

    @property
    def level_tokens_per_s(self) -> float:
        return min(self.levels_tokens_per_s)


def planned(
    shares: tuple[ModelShare, ...],
    nodes: Sequence[frozenset[str]],
    *,
    options: PlanOptions,
    seconds: float,
    cancel: CancelToken,
) -> Dealt:
    """Plan all models, `seconds` for each. Raises what `plan_on` does."""
    plans = tuple(
        plan_on(share, own, options=options, seconds=seconds, cancel=cancel, start=None)
        for share, own in zip(shares, nodes, strict=True)
    )
    return Dealt(shares=shares, nodes=tuple(nodes), plans=plans)


def plan_on(
    share: ModelShare,
    nodes: frozenset[str],
    *,
    options: PlanOptions,
    seconds: float,
    cancel: CancelToken,
    start: Placement | None,
) -> Plan:
    """One model on these nodes of the cluster, by estimate where the flow is not the objective.

    Raises ModelDoesNotFit, NoPlacementFound and LimitsNotKept.
    """
    plan = compute_plan(
        share.problem.only(nodes),
        options=replace(options, time_limit_s=seconds),
        cancel=cancel,
        start=start,
        simulates=False,
    )
    if options.objective != "flow" and plan.forecast is None:
        raise NoPlacementFound(
            f"no plan for model {plan.model_name!r} on its nodes serves a request"
        )
    return plan


def nodes_of_models(kinds: Sequence[Kind], counts: Counts) -> tuple[frozenset[str], ...]:
    """Each kind's nodes in order: the first model's first; the last model gets what is left."""
    nodes: list[set[str]] = [set() for _ in counts]
    for position, kind in enumerate(kinds):
        given = 0
        for own, of_model in zip(nodes, counts, strict=True):
            own.update(kind.names[given : given + of_model[position]])
            given += of_model[position]
        nodes[-1].update(kind.names[given:])
    return tuple(frozenset(names) for names in nodes)
