"""An unused link is filled until its rate is known, within bounds, and gives way at once."""

import time
from dataclasses import replace

import pytest

from runtime.protocol.control import PeerAddress
from runtime.protocol.data import DType, Entry, Flag, Kind, MeasureOrder, Message
from runtime.transport.base import UnknownPeer
from runtime.transport.link_scheduler import LinkOptions, LinkRule
from runtime.transport.measuring import Measuring
from runtime.transport.zmq_sockets import KeyPair
from runtime.transport.zmq_transport import ZmqTransport
from tests.runtime.virtual_link import VirtualLink

ORDER = MeasureOrder(peer="b", most_bytes=32_000_000, most_s=3.0)
PATIENCE_S = 90.0


def measured(link: VirtualLink, *, order: MeasureOrder = ORDER) -> Measuring:
    """Fills the link before each chunk, as the lanes' thread does."""
    measuring = Measuring(order, link.scheduler, now_s=link.now_s)
    link.fill = lambda now_s: measuring.fill(now_s=now_s)
    return measuring


@pytest.mark.parametrize("bytes_per_s", [1e6, 12.5e6, 50e6])
@pytest.mark.parametrize("delay_s", [0.001, 0.03])
def test_the_rate_and_round_trip_of_an_idle_link_are_found_within_bounds(
    bytes_per_s: float, delay_s: float
) -> None:
    link = VirtualLink(bytes_per_s=bytes_per_s, delay_s=delay_s)
    measuring = measured(link)
    link.run(until_s=ORDER.most_s + 1)
    rate = link.scheduler.rate
    assert rate.bytes_per_s == pytest.approx(bytes_per_s, rel=0.1)
    assert not rate.is_floor
    assert rate.rtt_s == pytest.approx(2 * delay_s, abs=0.01)
    assert measuring.has_ended(link.now_s)
    counters = link.scheduler.counters
    assert 0 < counters.filler_bytes_total <= ORDER.most_bytes + 100
    assert counters.bulk_bytes_total == counters.chunks_total == 0


def test_no_more_bytes_and_time_are_taken_than_allowed() -> None:
    link = VirtualLink(bytes_per_s=1e9, delay_s=0.03)
    measured(link, order=replace(ORDER, most_bytes=200_000))
    link.run(until_s=4.0)
    assert 190_000 <= link.scheduler.counters.filler_bytes_total <= 200_100
    dead = VirtualLink(bytes_per_s=1.0, delay_s=0.03)
    measuring = measured(dead)
    dead.run(until_s=ORDER.most_s)
    assert measuring.has_ended(dead.now_s)
    assert dead.scheduler.rate.bytes_per_s is None


def test_it_gives_way_to_prompts_and_decodes_but_not_to_status() -> None:
    link = VirtualLink(bytes_per_s=12.5e6, delay_s=0.03)
    measuring = measured(link)
    link.run(until_s=0.1)
    measuring.on_traffic(200, is_prompt=False)
    assert not measuring.has_ended(link.now_s)
    before = link.scheduler.counters.filler_bytes_total
    measuring.on_traffic(50_000, is_prompt=False)
    assert measuring.has_ended(link.now_s)
    link.run(until_s=2.0)
    assert link.scheduler.counters.filler_bytes_total <= before + 2 * 65_600
    other = measured(VirtualLink(bytes_per_s=12.5e6, delay_s=0.03))
    other.on_traffic(1, is_prompt=True)
    assert other.has_ended(0.0)


def prompt(request: int) -> Message:
    entry = Entry(request=request, epoch=0, position=0, n_tokens=1, hop=1, flags=Flag.PREFILL)
    return Message(
        kind=Kind.ROWS, generation=1, entries=(entry,), dtype=DType.FLOAT16, payload=bytes(50_000)
    )


def joined(*, rule: LinkRule = LinkRule.SCHEDULED) -> tuple[ZmqTransport, ZmqTransport]:
    keys = [KeyPair.generate() for _ in range(2)]
    ends = [
        ZmqTransport(name=name, bind="tcp://127.0.0.1:0", keys=own, options=LinkOptions(rule=rule))
        for name, own in zip("ab", keys, strict=True)
    ]
    for end, other, name, key in zip(ends, reversed(ends), "ba", reversed(keys), strict=True):
        end.set_peers([PeerAddress(name=name, endpoint=other.endpoint, public_key=key.public_key)])
    return ends[0], ends[1]


def test_real_links_are_measured_and_the_receiver_gets_nothing_of_it() -> None:
    sender, receiver = joined()
    try:
        with pytest.raises(UnknownPeer, match="stranger"):
            sender.measure(replace(ORDER, peer="stranger"))
        assert sender.measure(ORDER)
        deadline_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline_s:
            stats = sender.link_stats()["b"]
            if stats.bandwidth_bytes_per_s and stats.rtt_s and not stats.in_flight_bytes:
                break
            time.sleep(0.01)
        assert stats.bandwidth_bytes_per_s is not None
        assert stats.filler_bytes_total > 0
        assert stats.bulk_bytes_total == 0
        sender.send("b", prompt(7))
        received = receiver.receive(timeout_s=PATIENCE_S)
        assert [one.message.entries[0].request for one in received] == [7]
        assert receiver.dropped_messages == 0
    finally:
        sender.close()
        receiver.close()


def test_links_without_order_are_not_measured() -> None:
    sender, receiver = joined(rule=LinkRule.FIFO)
    try:
        assert not sender.measure(ORDER)
    finally:
        sender.close()
        receiver.close()
