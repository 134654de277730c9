"""A shaped direction keeps its rate, delay, loss and queue exactly, on any clock."""

import pytest

from tests.shaped_links.shaped_pipe import Shape, ShapedPipe


def drained(pipe: ShapedPipe) -> list[tuple[float, bytes]]:
    """Everything that flies, with when it arrives."""
    arrivals = []
    while (moment := pipe.next_s()) is not None:
        arrivals += [(moment, packet) for packet in pipe.pop_due(moment)]
    return arrivals


def test_packets_leave_at_the_rate_and_arrive_after_the_delay_in_order() -> None:
    pipe = ShapedPipe(Shape(rate_bytes_per_s=1000.0, delay_s=0.5, queue_bytes=10_000), seed=0)
    for name in (b"a", b"b", b"c"):
        pipe.push(name * 100, now_s=1.0)
    arrivals = drained(pipe)
    assert [moment for moment, _ in arrivals] == pytest.approx([1.6, 1.7, 1.8])
    assert [packet[:1] for _, packet in arrivals] == [b"a", b"b", b"c"]


def test_what_the_queue_cannot_hold_is_dropped_and_counted() -> None:
    pipe = ShapedPipe(Shape(rate_bytes_per_s=1000.0, queue_bytes=250), seed=0)
    for _ in range(5):
        pipe.push(bytes(100), now_s=0.0)
    assert len(drained(pipe)) == 2
    assert pipe.counters.overflowed == 3


def test_losses_are_the_share_asked_for_and_the_same_for_the_same_seed() -> None:
    def lost(seed: int) -> list[int]:
        pipe = ShapedPipe(Shape(loss=0.1), seed=seed)
        for number in range(5000):
            pipe.push(number.to_bytes(2, "little"), now_s=0.0)
        arrived = {int.from_bytes(packet, "little") for _, packet in drained(pipe)}
        return [number for number in range(5000) if number not in arrived]

    assert lost(3) == lost(3)
    assert lost(3) != lost(4)
    assert 400 < len(lost(3)) < 600


def test_a_link_that_is_down_takes_nothing_and_goes_on_when_it_is_up_again() -> None:
    pipe = ShapedPipe(Shape(), seed=0)
    pipe.shape = Shape(up=False)
    pipe.push(b"cut", now_s=0.0)
    pipe.shape = Shape()
    pipe.push(b"through", now_s=1.0)
    assert [packet for _, packet in drained(pipe)] == [b"through"]
    assert pipe.counters.cut == 1


def test_a_shorter_delay_lets_nothing_overtake() -> None:
    pipe = ShapedPipe(Shape(delay_s=1.0), seed=0)
    pipe.push(b"first", now_s=0.0)
    pipe.shape = Shape(delay_s=0.1)
    pipe.push(b"second", now_s=0.2)
    assert drained(pipe) == [(1.0, b"first"), (1.0, b"second")]


@pytest.mark.parametrize(
    "wrong", [{"rate_bytes_per_s": 0.0}, {"delay_s": -1.0}, {"loss": 1.5}, {"queue_bytes": -1}]
)
def test_a_shape_that_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong)).split("_")[0]):
        Shape(**wrong)  # type: ignore[arg-type]
