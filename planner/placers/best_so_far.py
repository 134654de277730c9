"""The best placement of one search by exact max flow, told to whoever listens."""

from collections.abc import Callable

from planner.capacity import fits
from planner.domain.placement import Placement
from planner.domain.plan import Incumbent
from planner.domain.problem import Problem
from planner.placers.around_pins import AroundPins
from planner.placers.base import Progress, SearchOptions
from planner.placers.flow_meter import FlowMeter


class BestSoFar:
    """Keeps the offered placement with the largest flow.

    Puts pinned nodes in their places, and tries the stages laid around these as well. What gives a
    node more layers than it has memory for at an end of the model is laid again as stages.
    """

    def __init__(
        self,
        problem: Problem,
        options: SearchOptions,
        *,
        placer: str,
        upper_bound_tokens_per_s: float,
        progress: Progress,
        elapsed_s: Callable[[], float],
    ) -> None:
        self._options = options
        self._meter = FlowMeter(problem, options)
        self._placer = placer
        self._upper_bound = upper_bound_tokens_per_s
        self._progress = progress
        self._elapsed_s = elapsed_s
        self._problem = problem
        may_not_fit = any(
            problem.profile_of(node.name).memory is not None for node in problem.cluster.nodes
        )
        self._around_pins = (
            AroundPins(problem, options.rules) if options.rules.pinned or may_not_fit else None
        )
        self.placement: Placement | None = None
        self.tokens_per_s = 0.0

    def start_from(self, placement: Placement) -> None:
        """A placement from elsewhere: nobody is told."""
        self.placement, self.tokens_per_s = placement, self._meter.tokens_per_s(placement)

    def begin_around_pins(self) -> None:
        """Lay stages before anything is found, where nodes are pinned or the ends cost memory."""
        if self._around_pins is not None:
            for order in self._around_pins.first_orders():
                self._offer_laid(self._around_pins, order)

    def offer(self, placement: Placement) -> None:
        if self._around_pins is None:
            self._offer_as_it_is(placement)
            return
        pinned = dict(self._options.rules.pinned)
        with_pins = Placement(layers=dict(placement.layers) | pinned)
        if all(fits(self._problem, name, held) for name, held in with_pins.layers.items()):
            self._offer_as_it_is(with_pins)
            if not pinned:
                return
        for order in self._around_pins.orders_of(placement):
            self._offer_laid(self._around_pins, order)

    def _offer_laid(self, around_pins: AroundPins, order: list[str]) -> None:
        laid = around_pins.laid(order, above_tokens_per_s=self.tokens_per_s)
        if laid is not None:
            self._offer_as_it_is(laid)

    def _offer_as_it_is(self, placement: Placement) -> None:
        flow = self._meter.tokens_per_s(placement)
        if flow <= self.tokens_per_s:
            return
        self.placement, self.tokens_per_s = placement, flow
        self._progress(
            Incumbent(
                elapsed_s=self._elapsed_s(),
                flow_tokens_per_s=flow,
                upper_bound_tokens_per_s=max(flow, self._upper_bound),
                placer=self._placer,
                placement=placement,
            )
        )
