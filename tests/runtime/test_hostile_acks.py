"""Acks of a listed peer that makes them up: they spoil its own link and nothing else."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.protocol.link_frames import Ack, Probe, decode_link_frame, encode_link_frame
from runtime.transport.link_scheduler import LinkOptions, LinkScheduler
from runtime.transport.urgent_lane import UrgentLane

MOST = 2**64 - 1
NUMBERS = st.one_of(st.integers(0, 50), st.integers(0, MOST), st.just(MOST), st.integers(0, 2**40))
# (what it says it expects, follows, delivered, sent at, seconds until then)
ACKS = st.lists(
    st.tuples(
        st.one_of(st.integers(0, 40), NUMBERS), NUMBERS, NUMBERS,
        st.one_of(st.none(), NUMBERS), st.floats(0, 3),
    ),
    max_size=40,
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(acks=ACKS)
def test_no_ack_breaks_the_link_that_it_answers_or_the_report_of_it(
    acks: list[tuple[int, int, int, int | None, float]],
) -> None:
    scheduler = LinkScheduler(LinkOptions(), new_stream=itertools.count(1).__next__)
    lane = UrgentLane(most_kept=100, new_stream=itertools.count(1).__next__)
    now_s = 1000.0
    for expected, follows, delivered, sent_us, later_s in acks:
        scheduler.push(b"head", bytes(300_000))
        lane.number(b"head", b"x", now_s=now_s)
        for _ in range(20):
            sending = scheduler.next(now_s=now_s)
            if sending is None:
                break
            assert encode_link_frame(sending.header)
        probe = scheduler.probe(now_s=now_s)
        assert probe is None or isinstance(decode_link_frame(encode_link_frame(probe)), Probe)
        scheduler.on_urgent(100, now_s=now_s)
        now_s += later_s
        ack = Ack(
            stream=scheduler.stream,
            expected=expected,
            follows=follows,
            delivered_bytes=delivered,
            sent_us=round(now_s * 1e6) - 10 if sent_us is None else sent_us,
        )
        scheduler.on_ack(ack, now_s=now_s)
        lane.on_ack(ack, now_s=now_s)
        assert scheduler.wake_s(now_s=now_s) >= 0
        assert scheduler.stats(now_s).in_flight_bytes >= 0
