"""Exchanges of nodes between models, tried in the order of what the work of the nodes promises.

The worst model gets a node of another, for nothing or for one of its own. What a deal cannot see
(links, stages that do not divide) shows in the plans of the two models, searched again from what
they have. Where the worse of the two is better than before, the exchange stays.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from planner.domain.plan import Plan
from planner.multi_model.deal import Kind, work_per_node
from planner.multi_model.dealt import Dealt, plan_on
from planner.multi_model.shares import NOT_PLANNED, served_by
from planner.placers.base import CancelToken
from planner.placers.stop import Stop
from planner.plan_options import PlanOptions
from planner.tuning.served import ExchangeTuning as tuned


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """Nodes `taken` move from model `donor` to model `receiver`, `given` (None: none) back."""

    receiver: int
    donor: int
    taken: str
    given: str | None

    def after(self, nodes: Sequence[frozenset[str]]) -> tuple[frozenset[str], ...]:
        back = frozenset() if self.given is None else frozenset({self.given})
        changed = list(nodes)
        changed[self.receiver] = changed[self.receiver] - back | {self.taken}
        changed[self.donor] = changed[self.donor] - {self.taken} | back
        return tuple(changed)


def exchange_nodes(
    kinds: Sequence[Kind],
    dealt: Dealt,
    *,
    options: PlanOptions,
    stop: Stop,
    enough_tokens_per_s: float,
) -> Dealt:
    """The mix after every exchange that raised its worst level; ends when none of them does."""
    best = dealt
    tries = 0
    has_gained = True
    while has_gained and best.level_tokens_per_s < enough_tokens_per_s:
        has_gained = False
        for exchange in promising_exchanges(kinds, best):
            if tries >= tuned.MOST_TRIES or stop.is_over():
                return best
            tries += 1
            seconds = min(stop.left_s, tuned.TRY_SHARE_OF_TIME * options.time_limit_s)
            changed = _changed(best, exchange, options, seconds, stop)
            if changed is not None and _is_better(changed, best):
                best, has_gained = changed, True
                break
    return best


def promising_exchanges(kinds: Sequence[Kind], dealt: Dealt) -> Iterator[Exchange]:
    """Exchanges that give the worst model a node, the most promising first.

    A model's level is assumed to change as the knapsack work of its nodes does. Of equal nodes one
    without flow is moved first.
    """
    shares, levels = dealt.shares, dealt.levels_tokens_per_s
    receiver = min(range(len(shares)), key=levels.__getitem__)
    worst = levels[receiver]
    works = [
        [work_per_node(share, kind.names[0], flow=plan.flow.value_tokens_per_s) for kind in kinds]
        for share, plan in zip(shares, dealt.plans, strict=True)
    ]
    owned = [
        _idle_first(kinds, nodes, plan)
        for nodes, plan in zip(dealt.nodes, dealt.plans, strict=True)
    ]
    whole = [
        sum(work * len(names) for work, names in zip(works[model], owned[model], strict=True))
        for model in range(len(shares))
    ]
    promises: list[tuple[float, int, Exchange]] = []
    for donor in range(len(shares)):
        if donor == receiver or min(whole[donor], whole[receiver]) <= 0:
            continue
        for taken in range(len(kinds)):
            for given in (None, *range(len(kinds))):
                if given == taken or not owned[donor][taken]:
                    continue
                if given is not None and not owned[receiver][given]:
                    continue
                back = (
                    (0.0, 0.0) if given is None else (works[receiver][given], works[donor][given])
                )
                promise = min(
                    worst * (1 + (works[receiver][taken] - back[0]) / whole[receiver]),
                    levels[donor] * (1 - (works[donor][taken] - back[1]) / whole[donor]),
                )
                if promise > worst * tuned.LEAST_PROMISE:
                    exchange = Exchange(
                        receiver=receiver,
                        donor=donor,
                        taken=owned[donor][taken][0],
                        given=None if given is None else owned[receiver][given][0],
                    )
                    promises.append((-promise, len(promises), exchange))
    for _, _, exchange in sorted(promises, key=lambda promise: promise[:2]):
        yield exchange


def _idle_first(kinds: Sequence[Kind], nodes: frozenset[str], plan: Plan) -> list[list[str]]:
    """The model's nodes by kind, those that carry least first."""
    carried = {name: node_flow.flow_tokens_per_s for name, node_flow in plan.flow.nodes.items()}
    return [
        sorted(
            (n for n in kind.names if n in nodes), key=lambda name: (carried.get(name, 0.0), name)
        )
        for kind in kinds
    ]


def _changed(
    dealt: Dealt,
    exchange: Exchange,
    options: PlanOptions,
    seconds: float,
    cancel: CancelToken,
) -> Dealt | None:
    """The mix after the exchange; None where one of the two models has no plan then."""
    nodes = exchange.after(dealt.nodes)
    plans = list(dealt.plans)
    for model in (exchange.receiver, exchange.donor):
        try:
            plans[model] = plan_on(
                dealt.shares[model],
                nodes[model],
                options=options,
                seconds=seconds,
                cancel=cancel,
                start=dealt.plans[model].placement,
            )
        except NOT_PLANNED:
            return None
        if served_by(plans[model]) <= dealt.level_tokens_per_s * dealt.shares[model].weight:
            return None
    return replace(dealt, nodes=nodes, plans=tuple(plans))


def _is_better(changed: Dealt, before: Dealt) -> bool:
    """Compare by the worst level, then by the next."""
    return sorted(changed.levels_tokens_per_s) > [
        level * (1 + tuned.LEAST_GAIN) for level in sorted(before.levels_tokens_per_s)
    ]
