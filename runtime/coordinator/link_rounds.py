"""Has stages find out what links do that the plan does not use, so that the next plan may know.

In rounds: in each, every node takes part in one measurement at most, and rests a hundred times as
long as one lasts. After as many rounds as there are other nodes each pair has had its turn one way,
after as many again the other. A stage that has traffic gives way; nodes that requests run on are
left out.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence

from runtime.coordinator.dispatcher import Dispatcher
from runtime.protocol.control import ServingPlan
from runtime.protocol.data import Kind, MeasureOrder, Message
from runtime.transport.base import Sender, SendError

logger = logging.getLogger(__name__)

MOST_S = 1.0
MOST_BYTES = 32 * 10**6
REST = 100  # times as long as a measurement: at most 1 % of what a network card can do
ROUND_EVERY_S = MOST_S * (1 + REST)
_LOOK_EVERY_S = 5.0

Ends = tuple[str, str]


def pairs_of_round(names: Sequence[str], number: int) -> list[Ends]:
    """Each name once at most, one end of a pair; all pairs both ways in 2 (n - 1) rounds, n being
    the number of names, or one more if that is odd."""
    places: list[str | None] = [*names, *([None] if len(names) % 2 else [])]
    if len(places) < 2:
        return []
    turn, back = number % (len(places) - 1), number // (len(places) - 1) % 2
    first, others = places[0], places[1:]
    circle = [first, *others[turn:], *others[:turn]]
    half = len(circle) // 2
    pairs = zip(circle[:half], reversed(circle[half:]), strict=True)
    return [(b, a) if back else (a, b) for a, b in pairs if a is not None and b is not None]


def used_pairs(plan: ServingPlan) -> set[Ends]:
    """That the plan's weights send requests over; the way back of tokens among them."""
    nodes = plan.placement.layers
    hops = {
        (source, target)
        for source, targets in plan.routing_weights.items()
        for target, weight in targets.items()
        if weight > 0 and source in nodes and target in nodes
    }
    last = {source for source, targets in plan.routing_weights.items() if targets.get("sink")}
    first = {target for target in plan.routing_weights.get("source", {}) if target in nodes}
    return hops | {(end, begin) for end in last & nodes.keys() for begin in first}


class LinkRounds:
    """Owns when unused links are measured; the coordinator's loop asks it.

    When which round is due; times in seconds of one clock. The first is not due at once: who
    has just begun to serve is left alone.
    """

    def __init__(self, *, now_s: float) -> None:
        self._number = 0
        self._next_s = now_s + ROUND_EVERY_S

    def due(
        self, *, names: Sequence[str], used: Collection[Ends], busy: Collection[str], now_s: float
    ) -> list[Ends]:
        """The links to measure now, source and target; empty until the next round is due."""
        if now_s < self._next_s:
            return []
        self._next_s = now_s + ROUND_EVERY_S
        pairs = pairs_of_round(names, self._number)
        self._number += 1
        return [
            pair
            for pair in pairs
            if pair not in used and pair[0] not in busy and pair[1] not in busy
        ]


async def measure_links(
    sender: Sender, dispatcher: Dispatcher, *, clock: Callable[[], float]
) -> None:
    """Until cancelled."""
    rounds = LinkRounds(now_s=clock())
    while True:
        await asyncio.sleep(_LOOK_EVERY_S)
        serving = dispatcher.serving
        if serving is None or serving.plan.emulated:
            continue
        for source, target in rounds.due(
            names=serving.nodes,
            used=used_pairs(serving.plan),
            busy=dispatcher.nodes_in_use | set(dispatcher.silent_nodes()),
            now_s=clock(),
        ):
            order = MeasureOrder(peer=target, most_bytes=MOST_BYTES, most_s=MOST_S)
            try:
                sender.send(
                    source,
                    Message(
                        kind=Kind.MEASURE,
                        generation=serving.plan.generation,
                        measure=order,
                    ),
                )
            except SendError as error:
                logger.info("no measurement from %s to %s: %s", source, target, error)
