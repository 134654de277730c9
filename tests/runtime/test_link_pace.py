"""In virtual time the measured rate follows what a link does, within its promises."""

import random

import pytest

from tests.runtime.virtual_link import VirtualLink

ZEROS = bytes(25_000_000)
# Of noise and of pauses.
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2, 3))]


def busy(link: VirtualLink, *, until_s: float) -> None:
    """Prompts all the time, and a decode each 50 ms."""
    for number in range(int(until_s / 0.05)):
        link.at(number * 0.05, lambda: link.send_decode(20_000))
    for number in range(int(until_s / 0.25)):
        link.at(number * 0.25, lambda: top_up(link))


def top_up(link: VirtualLink) -> None:
    """Keep half a second of work waiting; what came is of no interest."""
    link.received.clear()
    enough = int(link.bytes_per_s / 2)
    if link.scheduler.waiting_bytes < enough:
        link.send_prompt(b"head", memoryview(ZEROS)[:enough])


def rate(link: VirtualLink) -> float:
    measured = link.scheduler.rate.bytes_per_s
    assert measured is not None
    return measured


@pytest.mark.parametrize("bytes_per_s", [1e6, 12.5e6, 50e6])
@pytest.mark.parametrize("delay_s", [0.001, 0.03])
@pytest.mark.parametrize("wakes_late_s", [0.0, 0.004])
def test_a_busy_link_is_measured_within_a_tenth(
    bytes_per_s: float, delay_s: float, wakes_late_s: float
) -> None:
    link = VirtualLink(bytes_per_s=bytes_per_s, delay_s=delay_s, wakes_late_s=wakes_late_s)
    busy(link, until_s=7.0)
    link.run(until_s=6.0)
    assert rate(link) == pytest.approx(bytes_per_s, rel=0.1)
    assert not link.scheduler.rate.is_floor
    assert link.scheduler.rate.rtt_s == pytest.approx(2 * delay_s, abs=0.01)


def test_a_link_that_was_never_full_is_said_to_do_at_least_what_went() -> None:
    link = VirtualLink(bytes_per_s=12.5e6, delay_s=0.03)
    for number in range(100):
        link.at(number * 0.05, lambda: link.send_prompt(b"head", bytes(20_000)))
    link.run(until_s=5.0)
    assert link.scheduler.rate.is_floor
    assert rate(link) < 1e6


def test_prompts_are_not_held_to_the_little_that_a_link_was_asked_for_before() -> None:
    link = VirtualLink(bytes_per_s=2.5e6, delay_s=0.01)
    for number in range(100):
        link.at(number * 0.08, lambda: link.send_prompt(b"head", bytes(16_000)))
    link.run(until_s=9.0)
    assert link.scheduler.rate.pace is None
    link.send_prompt(b"head", bytes(48_000))
    link.run(until_s=10.0)
    took_s = link.received[-1][0] - 9.0
    assert took_s == pytest.approx(48_000 / 2.5e6 + 0.01, rel=0.1)


def test_a_link_that_had_enough_to_do_is_paced_by_what_it_did() -> None:
    link = VirtualLink(bytes_per_s=2.5e6, delay_s=0.01)
    assert link.scheduler.rate.pace is None
    busy(link, until_s=3.0)
    link.run(until_s=3.0)
    for number in range(100):
        link.at(3.0 + number * 0.08, lambda: link.send_prompt(b"head", bytes(16_000)))
    link.run(until_s=12.0)
    assert link.scheduler.rate.pace == pytest.approx(2.5e6, rel=0.3)


def test_a_cut_from_100_to_40_and_back_is_measured_within_a_tenth_in_five_seconds() -> None:
    link = VirtualLink(bytes_per_s=12.5e6, delay_s=0.03)
    busy(link, until_s=30.0)
    link.run(until_s=10.0)
    link.bytes_per_s = 5e6
    link.run(until_s=15.0)
    assert rate(link) == pytest.approx(5e6, rel=0.1)
    link.bytes_per_s = 12.5e6
    link.run(until_s=20.0)
    assert rate(link) == pytest.approx(12.5e6, rel=0.1)


def test_a_longer_way_is_no_slower_link() -> None:
    link = VirtualLink(bytes_per_s=12.5e6, delay_s=0.01)
    busy(link, until_s=30.0)
    link.run(until_s=5.0)
    link.delay_s = 0.05
    link.run(until_s=25.0)
    assert rate(link) == pytest.approx(12.5e6, rel=0.1)
    assert link.scheduler.rate.rtt_s == pytest.approx(0.1, abs=0.01)


def test_an_idle_link_keeps_its_rate_and_probes_measure_its_round_trip() -> None:
    link = VirtualLink(bytes_per_s=12.5e6, delay_s=0.03)
    busy(link, until_s=4.0)
    link.run(until_s=10.0)
    before = rate(link)
    link.delay_s = 0.05
    link.run(until_s=30.0)
    assert rate(link) == before
    assert link.scheduler.rate.rtt_s == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize("delay_s", [0.01, 0.03, 0.05])
@pytest.mark.parametrize("restart_bytes", [15_000, 90_000])
def test_prompts_with_pauses_do_not_make_a_link_look_slow_where_tcp_begins_anew(
    delay_s: float, restart_bytes: int
) -> None:
    link = VirtualLink(
        bytes_per_s=12.5e6, delay_s=delay_s, wakes_late_s=0.002, restart_bytes=restart_bytes
    )
    for number in range(500):
        link.at(number * 0.05, lambda: link.send_decode(50_000))
    begins_s = [1.0 + 2.5 * number for number in range(9)]
    for begun_s in begins_s:
        link.at(begun_s, lambda: link.send_prompt(b"head", memoryview(ZEROS)[:13_000_000]))
    link.run(until_s=begins_s[2])
    for begun_s in begins_s[2:]:
        link.run(until_s=begun_s + 2.0)
        assert rate(link) == pytest.approx(12.5e6, rel=0.1)


@pytest.mark.parametrize("wakes_late_s", [0.0, 0.005])
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("prompt_bytes", [500_000, 1_000_000, 2_000_000])
def test_short_prompts_that_tcp_never_gets_going_for_do_not_make_a_link_look_slow(
    prompt_bytes: int, seed: int, wakes_late_s: float
) -> None:
    link = VirtualLink(
        bytes_per_s=12.5e6,
        delay_s=0.03,
        wakes_late_s=wakes_late_s,
        restart_bytes=90_000,
        noise=random.Random(seed),
    )
    for number in range(600):
        link.at(number * 0.05, lambda: link.send_decode(50_000))
    pause, begin_s = random.Random(seed), 0.5
    while begin_s < 30.0:
        link.at(begin_s, lambda: link.send_prompt(b"head", memoryview(ZEROS)[:prompt_bytes]))
        begin_s += prompt_bytes / 12.5e6 + 0.1 + pause.expovariate(4)
    for second in range(5, 31):
        link.run(until_s=float(second))
        link.received.clear()
        assert link.scheduler.rate.is_floor or rate(link) == pytest.approx(12.5e6, rel=0.15)


def test_a_cut_during_a_pause_is_measured_with_the_next_prompts() -> None:
    link = VirtualLink(bytes_per_s=12.5e6, delay_s=0.03, restart_bytes=90_000)
    busy(link, until_s=4.0)
    link.run(until_s=8.0)
    link.bytes_per_s = 5e6
    for number in range(20):
        link.at(8.0 + number * 0.25, lambda: top_up(link))
    link.run(until_s=13.0)
    assert rate(link) == pytest.approx(5e6, rel=0.1)


@pytest.mark.parametrize("wakes_late_s", [0.0, 0.003])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_cut_and_its_end_are_measured_in_five_seconds_with_prompts_now_and_then(
    seed: int, wakes_late_s: float
) -> None:
    link = VirtualLink(
        bytes_per_s=12.5e6,
        delay_s=0.03,
        restart_bytes=90_000,
        wakes_late_s=wakes_late_s,
        noise=random.Random(seed),
    )
    for number in range(1600):
        link.at(number * 0.05, lambda: link.send_decode(16_000))
    pause, begin_s = random.Random(seed), 0.5
    while begin_s < 80.0:
        link.at(begin_s, lambda: link.send_prompt(b"head", memoryview(ZEROS)[:3_000_000]))
        begin_s += 0.45 + pause.expovariate(4)
    for changed_s in (20.0, 40.0, 60.0):
        link.run(until_s=changed_s)
        link.received.clear()
        link.bytes_per_s = 5e6 if link.bytes_per_s > 5e6 else 12.5e6
        link.run(until_s=changed_s + 5.0)
        assert rate(link) == pytest.approx(link.bytes_per_s, rel=0.1)


def test_what_acks_say_is_the_rate_where_tcp_says_nothing_and_nothing_is_paced() -> None:
    link = VirtualLink(bytes_per_s=2.5e6, delay_s=0.02, tcp_says=False)
    busy(link, until_s=5.0)
    link.run(until_s=5.0)
    assert rate(link) == pytest.approx(2.5e6, rel=0.1)


def test_a_queue_that_others_keep_long_does_not_take_the_rate_down() -> None:
    """Half of the link is always filled by others, who let a queue of 50 ms stand."""
    link = VirtualLink(bytes_per_s=12.5e6, delay_s=0.03)
    busy(link, until_s=3.0)
    link.run(until_s=3.0)
    link.bytes_per_s, link.delay_s = 6.25e6, 0.055
    busy(link, until_s=30.0)
    link.run(until_s=25.0)
    assert rate(link) == pytest.approx(6.25e6, rel=0.1)


def test_a_new_connection_whose_counters_begin_again_is_measured_on() -> None:
    link = VirtualLink(bytes_per_s=2.5e6, delay_s=0.02)
    busy(link, until_s=4.0)
    link.run(until_s=4.0)
    link.cut()
    link.bytes_per_s = 5e6
    for number in range(40):
        link.at(4.0 + number * 0.25, lambda: top_up(link))
    link.run(until_s=12.0)
    assert rate(link) == pytest.approx(5e6, rel=0.1)
