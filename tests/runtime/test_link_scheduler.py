"""Algorithm 1 on a link in virtual time: who goes first, how much, and what is never lost."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.protocol.link_frames import Ack, Chunk, Probe
from runtime.transport.link_scheduler import (
    LinkOptions,
    LinkRule,
    LinkScheduler,
)
from tests.examples import examples
from tests.runtime.virtual_link import VirtualLink

RATE = 12.5e6  # 100 Mb/s
DELAY_S = 0.03
DECODE_BYTES = 53_000
DECODE_EVERY_S = 0.05
PREFILL_BYTES = 13_300_000


def slow_link(**options: object) -> VirtualLink:
    return VirtualLink(
        bytes_per_s=RATE,
        delay_s=DELAY_S,
        options=LinkOptions(**options),  # type: ignore[arg-type]
    )


def send_decodes(link: VirtualLink, *, until_s: float) -> None:
    for number in range(int(until_s / DECODE_EVERY_S)):
        link.at(number * DECODE_EVERY_S, lambda: link.send_decode(DECODE_BYTES))


def send_prefill(link: VirtualLink, at_s: float) -> None:
    link.at(at_s, lambda: link.send_prompt(b"head", bytes(PREFILL_BYTES)))


def test_decodes_hardly_wait_behind_prefills_and_prefills_hardly_longer_than_alone() -> None:
    link, alone = slow_link(), slow_link()
    send_decodes(link, until_s=8.0)
    for start_s in (0.01, 2.01, 4.01, 6.01):
        send_prefill(link, start_s)
        send_prefill(alone, start_s)
    link.run(until_s=9.0)
    alone.run(until_s=9.0)
    idle_s = DELAY_S + DECODE_BYTES / RATE
    waits = [latency - idle_s for latency in link.decode_latencies_s]
    assert max(waits) <= 0.04
    assert sorted(waits)[int(0.95 * len(waits))] <= 0.015
    assert link.received[-1][0] - 6.01 <= 1.25 * (alone.received[-1][0] - 6.01)


def test_fifo_makes_decodes_wait_for_the_whole_prefill() -> None:
    link = slow_link(rule=LinkRule.UNSCHEDULED)
    send_decodes(link, until_s=1.0)
    send_prefill(link, 0.01)
    link.run(until_s=4.0)
    assert max(link.decode_latencies_s) > 1.0


@settings(max_examples=examples(25))
@given(
    decode_every_s=st.floats(0.001, 0.05),
    bytes_per_s=st.floats(1e6, 1e8),
)
def test_prompts_have_a_share_of_the_link_beside_any_number_of_decodes(
    decode_every_s: float, bytes_per_s: float
) -> None:
    link = VirtualLink(bytes_per_s=bytes_per_s, delay_s=0.001)
    link.send_prompt(b"head", bytes(int(bytes_per_s / 2)))
    link.run(until_s=1.0)  # the rate is known
    link.send_prompt(b"head", bytes(int(bytes_per_s / 20)))
    decode_bytes = int(2 * bytes_per_s * decode_every_s)  # twice what the link can do
    for number in range(int(1 / decode_every_s)):
        link.at(1.0 + number * decode_every_s, lambda: link.send_decode(decode_bytes))
    link.run(until_s=6.0)
    assert len(link.received) == 2


@settings(max_examples=examples(25))
@given(st.data())
def test_whatever_breaks_every_message_arrives_once_and_in_order(data: st.DataObject) -> None:
    """A connection may break at any time; the receiver goes on."""
    sizes = data.draw(st.lists(st.integers(0, 400_000), min_size=1, max_size=6))
    cuts = data.draw(st.lists(st.floats(0.0, 2.0), max_size=4))
    link = VirtualLink(bytes_per_s=1e6, delay_s=0.02)
    for number, size in enumerate(sizes):
        payload = bytes([number]) * size
        link.send_prompt(b"%d" % number, payload)
    elapsed_s = 0.0
    for gap_s in cuts:
        elapsed_s += gap_s
        link.run(until_s=elapsed_s)
        link.cut()
    link.run(until_s=elapsed_s + 40.0)
    assert [head for _, head, _ in link.received] == [b"%d" % n for n in range(len(sizes))]
    for number, (_, _, payload) in enumerate(link.received):
        assert payload == bytes([number]) * sizes[number]
    assert link.scheduler.in_flight_bytes == link.scheduler.waiting_bytes == 0
    assert not link.scheduler.has_waiting


@settings(max_examples=examples(25))
@given(at_s=st.floats(0.0, 3.0))
def test_a_receiver_that_was_started_anew_gets_whole_messages_only(at_s: float) -> None:
    link = VirtualLink(bytes_per_s=1e6, delay_s=0.02)
    for number in range(6):
        link.send_prompt(b"%d" % number, bytes([number]) * 400_000)
    link.run(until_s=at_s)
    link.restart_receiver()
    link.send_prompt(b"6", b"\6" * 400_000)
    link.run(until_s=at_s + 20.0)
    heads = [int(head) for _, head, _ in link.received]
    assert heads == sorted(set(heads))
    assert heads[-1] == 6
    assert all(payload == bytes([int(head)]) * 400_000 for _, head, payload in link.received)
    assert link.scheduler.in_flight_bytes == link.scheduler.waiting_bytes == 0


def test_a_probe_between_chunks_that_go_again_tells_of_no_receiver_started_anew() -> None:
    streams = itertools.count(7)
    scheduler = LinkScheduler(
        LinkOptions(least_chunk_bytes=100, most_chunk_bytes=100), new_stream=streams.__next__
    )
    scheduler.push(b"head", bytes(300))
    now_s = 1.0

    def send() -> Chunk:
        sending = scheduler.next(now_s=now_s)
        assert sending is not None
        return sending.header

    def ask() -> Probe:
        probe = scheduler.probe(now_s=now_s)
        assert probe is not None
        return probe

    def answer(asked: Chunk | Probe, *, expected: int) -> None:
        ack = Ack(
            stream=asked.stream,
            expected=expected,
            follows=asked.sequence + isinstance(asked, Chunk),
            delivered_bytes=expected * 100,
            sent_us=asked.sent_us,
        )
        scheduler.on_ack(ack, now_s=now_s)

    sent = [send() for _ in range(3)]
    answer(sent[2], expected=0)  # the first two were lost with a connection
    now_s = 2.0
    answer(send(), expected=1)  # nothing is under way now, and two chunks are to go again
    now_s = 3.0
    answer(ask(), expected=1)
    assert scheduler.stream == 7
    second = send()
    now_s = 4.0
    probe, third = ask(), send()
    assert [second.sequence, third.sequence] == [1, 2]
    answer(second, expected=2)
    answer(probe, expected=2)
    assert not scheduler.has_waiting, "what is on its way behind the probe is not missed"


def test_what_is_under_way_never_exceeds_the_window_by_more_than_a_chunk() -> None:
    link = slow_link()
    send_prefill(link, 0.0)
    most = 0.0
    for step in range(1, 400):
        link.run(until_s=step * 0.005)
        scheduler = link.scheduler
        most = max(most, scheduler.in_flight_bytes - scheduler.window_bytes)
    assert most <= link.options.most_chunk_bytes


def test_a_receiver_that_does_not_answer_stops_the_lane_and_is_called_stalled() -> None:
    scheduler = LinkScheduler(LinkOptions())
    scheduler.push(b"head", bytes(10_000_000))
    sent = 0
    while (chunk := scheduler.next(now_s=0.0)) is not None:
        sent += memoryview(chunk.piece.part).nbytes
    assert sent < 2 * LinkOptions().first_window_bytes
    assert not scheduler.is_stalled(1.0)
    assert scheduler.is_stalled(3.0)
    probes = [scheduler.probe(now_s=float(moment)) for moment in range(120)]
    assert 5 <= sum(probe is not None for probe in probes) <= 10  # ever fewer


def test_more_than_may_wait_is_not_taken_but_one_message_always_is() -> None:
    scheduler = LinkScheduler(LinkOptions(most_waiting_bytes=100))
    assert scheduler.has_room(1000)
    scheduler.push(b"head", bytes(1000))
    assert not scheduler.has_room(1)


@pytest.mark.parametrize("wrong", [{"least_chunk_bytes": 0}, {"least_chunk_bytes": 2**21}])
def test_options_that_make_no_sense_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=str(next(iter(wrong.values())))):
        LinkOptions(**wrong)  # type: ignore[arg-type]
