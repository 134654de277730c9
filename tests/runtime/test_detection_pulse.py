"""When a peer counts as lost: heartbeats, the patience with them, and processes that hang. Pure."""

import random

import pytest

from runtime.protocol.link_frames import Echo
from runtime.transport.heartbeats import (
    BEAT_INTERVAL_S,
    FIRST_TURN_S,
    LEAST_PATIENCE_S,
    LEAST_TURN_S,
    MOST_PATIENCE_S,
    Heartbeats,
    Loss,
)
from runtime.transport.turns import Turns


class Peer:
    """A peer that is beaten at and echoes as told, on a clock of its own."""

    def __init__(self) -> None:
        self.heartbeats = Heartbeats()
        self.now_s = 50.0
        self.under_way: list[tuple[float, int]] = []  # comes when, sequence
        self.turn_s = 0.0
        self.longest_turn_s = 0.05
        self.losses: list[tuple[float, Loss]] = []

    def run(self, seconds: float, *, round_trip_s: float | None) -> None:
        """None: nothing of what is sent now comes back."""
        until_s = self.now_s + seconds
        next_beat_s = self.now_s
        while self.now_s < until_s:
            if self.now_s >= next_beat_s:
                next_beat_s += BEAT_INTERVAL_S
                beat = self.heartbeats.beat(now_s=self.now_s)
                if round_trip_s is not None:
                    self.under_way.append((self.now_s + round_trip_s, beat.sequence))
            self._hear()
            before = self.heartbeats.loss
            self.heartbeats.judge(now_s=self.now_s)
            if self.heartbeats.loss is not before:
                self.losses.append((self.now_s, Loss.SILENT))
            self.now_s += 0.01

    def stall(self, seconds: float) -> None:
        """What is sent meanwhile is answered when that time is over."""
        over_s = self.now_s + seconds
        while self.now_s < over_s - 0.005:
            self.run(BEAT_INTERVAL_S, round_trip_s=over_s - self.now_s)

    def _hear(self) -> None:
        for at_s, sequence in list(self.under_way):
            if at_s <= self.now_s:
                self.under_way.remove((at_s, sequence))
                echo = Echo(
                    sequence=sequence,
                    turn_us=round(self.turn_s * 1e6),
                    longest_turn_us=round(self.longest_turn_s * 1e6),
                )
                self.heartbeats.hear(echo, now_s=self.now_s)


def test_a_peer_that_answers_is_there_and_one_that_was_never_heard_is_not_lost() -> None:
    quiet, there = Peer(), Peer()
    quiet.run(30, round_trip_s=None)
    there.run(30, round_trip_s=0.02)
    assert quiet.heartbeats.loss is None
    assert quiet.heartbeats.heard_s is None
    assert there.losses == []
    assert there.heartbeats.heard_s == pytest.approx(there.now_s, abs=0.3)


@pytest.mark.parametrize("round_trip_s", [0.001, 0.1, 0.4, 1.0])
def test_a_peer_that_falls_silent_is_lost_within_two_seconds(round_trip_s: float) -> None:
    for phase_s in (0.0, 0.05, 0.1, 0.15, 0.19):
        peer = Peer()
        peer.run(20 + phase_s, round_trip_s=round_trip_s)
        assert peer.losses == []
        peer.under_way.clear()
        silent_s = peer.now_s
        peer.run(5, round_trip_s=None)
        ((lost_s, loss),) = peer.losses
        assert loss is Loss.SILENT
        assert lost_s - silent_s < 2.0
        if round_trip_s <= 0.1:
            assert lost_s - silent_s <= BEAT_INTERVAL_S + LEAST_PATIENCE_S + 0.05


def test_patience_grows_with_round_trips_that_vary_and_stays_within_its_bounds() -> None:
    dice = random.Random(3)
    peer = Peer()
    peer.run(5, round_trip_s=0.01)
    assert peer.heartbeats.patience_s == LEAST_PATIENCE_S
    for _ in range(100):
        peer.run(3 * BEAT_INTERVAL_S, round_trip_s=dice.choice((0.01, 0.1, 0.2, 0.4)))
    assert LEAST_PATIENCE_S < peer.heartbeats.patience_s <= MOST_PATIENCE_S
    assert peer.losses == []
    peer.run(60, round_trip_s=0.01)
    assert peer.heartbeats.patience_s == LEAST_PATIENCE_S


def test_who_was_slow_twice_may_be_slow_again_a_little_later() -> None:
    peer = Peer()
    peer.run(20, round_trip_s=0.01)
    for _ in range(2):
        peer.stall(0.9)
        peer.run(6, round_trip_s=0.01)
    assert len(peer.losses) == 2
    assert peer.heartbeats.loss is None
    peer.stall(0.9)
    peer.run(6, round_trip_s=0.01)
    assert len(peer.losses) == 2
    peer.run(60, round_trip_s=0.01)
    assert peer.heartbeats.patience_s == LEAST_PATIENCE_S


@pytest.mark.parametrize("seconds", [0.8, 3.0, 8.0])
def test_who_was_cut_off_once_is_missed_as_soon_the_next_time(seconds: float) -> None:
    peer = Peer()
    peer.run(20, round_trip_s=0.01)
    for _ in range(3):
        before_s, before = peer.now_s, len(peer.losses)
        peer.stall(seconds)
        peer.run(12, round_trip_s=0.01)
        assert len(peer.losses) == before + 1
        assert peer.losses[-1][0] - before_s <= BEAT_INTERVAL_S + LEAST_PATIENCE_S + 0.05
        assert peer.heartbeats.loss is None


def test_a_peer_that_answers_again_is_there_again_and_old_answers_prove_nothing() -> None:
    peer = Peer()
    peer.run(10, round_trip_s=0.02)
    peer.run(4, round_trip_s=None)
    assert peer.heartbeats.loss is Loss.SILENT
    assert not peer.heartbeats.hear(
        Echo(sequence=10**6, turn_us=0, longest_turn_us=0), now_s=peer.now_s
    )
    assert peer.heartbeats.loss is Loss.SILENT
    peer.run(1, round_trip_s=0.02)
    assert peer.heartbeats.loss is None


def test_a_link_slower_than_any_patience_is_given_more_instead_of_being_lost_for_ever() -> None:
    peer = Peer()
    peer.run(5, round_trip_s=0.02)
    peer.run(60, round_trip_s=3.0)
    early = len(peer.losses)
    assert 1 <= early <= 8
    peer.run(30, round_trip_s=3.0)
    assert len(peer.losses) == early


def test_nobody_is_blamed_for_our_own_pause() -> None:
    peer = Peer()
    peer.run(10, round_trip_s=0.02)
    peer.heartbeats.beat(now_s=peer.now_s)
    peer.now_s += 30
    peer.heartbeats.skip(30)
    peer.heartbeats.judge(now_s=peer.now_s)
    assert peer.heartbeats.loss is None


def test_a_process_that_ended_is_lost_at_once_and_its_successor_is_met_without_prejudice() -> None:
    peer = Peer()
    peer.run(10, round_trip_s=0.02)
    peer.heartbeats.end()
    assert peer.heartbeats.loss is Loss.ENDED
    for _ in range(6):
        peer.run(1, round_trip_s=0.02)
        peer.heartbeats.end()
    peer.run(1, round_trip_s=0.02)
    assert peer.heartbeats.loss is None
    assert peer.heartbeats.patience_s <= MOST_PATIENCE_S


def test_a_process_that_hangs_is_lost_although_it_answers_until_its_turn_ends() -> None:
    peer = Peer()
    peer.run(5, round_trip_s=0.02)
    peer.turn_s = LEAST_TURN_S - 0.1
    peer.run(1, round_trip_s=0.02)
    assert peer.heartbeats.loss is None
    peer.turn_s = LEAST_TURN_S + 0.1
    peer.run(1, round_trip_s=0.02)
    assert peer.heartbeats.loss is Loss.HANGS
    peer.turn_s = 0.0
    peer.run(1, round_trip_s=0.02)
    assert peer.heartbeats.loss is None


def test_a_process_of_long_turns_is_given_its_time_and_so_is_the_first_turn_of_all() -> None:
    slow, new = Peer(), Peer()
    for peer in (slow, new):
        peer.run(5, round_trip_s=0.02)
    slow.longest_turn_s, slow.turn_s = 4.0, 15.0
    slow.run(1, round_trip_s=0.02)
    new.longest_turn_s, new.turn_s = 0.0, FIRST_TURN_S - 0.1
    new.run(1, round_trip_s=0.02)
    assert slow.heartbeats.loss is None
    assert new.heartbeats.loss is None


def test_turns_are_measured_between_takings_and_waiting_is_none() -> None:
    now_s = [10.0]
    turns = Turns(lambda: now_s[0])
    assert turns.so_far_s() == 0.0
    turns.begin()
    now_s[0] += 2.0
    assert turns.so_far_s() == 2.0
    turns.rest()
    now_s[0] += 50.0
    assert turns.so_far_s() == 0.0
    assert turns.longest_s == 2.0
    for _ in range(3000):
        turns.begin()
        now_s[0] += 0.01
        turns.rest()
    assert 0.2 < turns.longest_s < 1.0


def test_a_turn_with_more_rows_than_any_before_may_last_longer_in_proportion() -> None:
    now_s = [0.0]
    turns = Turns(lambda: now_s[0])

    def take_turn(rows: int, seconds: float) -> None:
        turns.begin()
        turns.works_on(rows)
        now_s[0] += seconds
        turns.rest()

    def expected_s(rows: int) -> float:
        turns.begin()
        turns.works_on(rows)
        return turns.longest_s

    assert expected_s(512) > expected_s(1) > 0, "nobody knows, but more take longer"
    take_turn(32, 0.4)
    assert expected_s(512) == pytest.approx(16 * 0.4)
    assert expected_s(8) == 0.4
    take_turn(8, 0.06)
    assert expected_s(8) == expected_s(15) == 0.06
    assert expected_s(16) == pytest.approx(2 * 0.06)
    take_turn(512, 6.5)
    assert expected_s(1000) == 6.5
    assert expected_s(32) == 0.4
    turns.begin()
    assert turns.longest_s == 0.0, "a turn without a step is another matter"
