"""Every unused pair is measured in turn, one measurement a node at a time, and rarely."""

from collections import Counter
from itertools import permutations

import pytest

from planner.domain.placement import LayerRange, Placement
from planner.domain.problem import Workload
from runtime.coordinator.link_rounds import (
    MOST_S,
    ROUND_EVERY_S,
    LinkRounds,
    pairs_of_round,
    used_pairs,
)
from runtime.protocol.control import ServingPlan
from runtime.protocol.data import FrameError, Kind, MeasureOrder, Message, decode, encode


@pytest.mark.parametrize("nodes", [0, 1, 2, 3, 4, 7, 24])
def test_all_pairs_have_their_turn_both_ways_and_no_node_has_two_at_once(nodes: int) -> None:
    names = [f"n{number}" for number in range(nodes)]
    seen: Counter[tuple[str, str]] = Counter()
    for number in range(2 * (nodes - 1 + nodes % 2)):
        pairs = pairs_of_round(names, number)
        ends = [end for pair in pairs for end in pair]
        assert len(ends) == len(set(ends))
        seen.update(pairs)
    assert seen == Counter(permutations(names, 2))


def test_a_round_leaves_out_what_is_used_or_busy_and_the_next_is_not_due_for_long() -> None:
    rounds = LinkRounds(now_s=0.0)
    names = ["a", "b", "c", "d"]
    asked = {"names": names, "used": set(), "busy": set()}
    assert rounds.due(**asked, now_s=ROUND_EVERY_S - 1) == []  # type: ignore[arg-type]
    all_of_it = pairs_of_round(names, 0)
    used, busy = {all_of_it[0]}, {all_of_it[1][1]}
    assert rounds.due(names=names, used=used, busy=busy, now_s=ROUND_EVERY_S) == []
    assert rounds.due(**asked, now_s=ROUND_EVERY_S + 1) == []  # type: ignore[arg-type]
    assert rounds.due(**asked, now_s=2 * ROUND_EVERY_S) == pairs_of_round(names, 1)  # type: ignore[arg-type]


def test_measuring_takes_at_most_a_hundredth_of_a_nodes_time() -> None:
    assert MOST_S / ROUND_EVERY_S <= 0.01


def test_links_that_weights_send_over_are_used_and_so_is_the_way_back() -> None:
    plan = ServingPlan(
        deployment_id=1,
        generation=1,
        model_name="m",
        checkpoint="",
        num_layers=4,
        partial_inference=False,
        placement=Placement(
            layers={
                "a": LayerRange(first=0, end=2),
                "b": LayerRange(first=2, end=4),
                "c": LayerRange(first=2, end=4),
            }
        ),
        routing_weights={
            "source": {"a": 1.0},
            "a": {"b": 1.0, "c": 0.0},
            "b": {"sink": 1.0},
            "c": {"sink": 0.0},
        },
        workload=Workload(mean_prompt_tokens=1, mean_output_tokens=1),
        max_context_tokens=8,
        peers=(),
    )
    assert used_pairs(plan) == {("a", "b"), ("b", "a")}


def order_of(*, peer: str = "küche", most_bytes: int = 32_000_000, most_s: float = 1.5) -> Message:
    order = MeasureOrder(peer=peer, most_bytes=most_bytes, most_s=most_s)
    return Message(kind=Kind.MEASURE, generation=1, measure=order)


def test_orders_arrive_as_they_were_sent_and_nonsense_is_refused() -> None:
    head, payload = encode(order_of())
    assert decode(head, payload) == order_of()
    without = bytes(head[:20])
    for wrong in (without, without + b"short", without + b"{}", head[:-1]):
        with pytest.raises(FrameError):
            decode(wrong, payload)
    for limits in ({"peer": ""}, {"most_bytes": 0}, {"most_s": 0.0}, {"most_s": float("inf")}):
        with pytest.raises(FrameError, match=next(iter(limits))):
            encode(order_of(**limits))  # type: ignore[arg-type]
