"""Whose pages are next when several coordinators want more than a stage has."""

from dataclasses import replace

import pytest
from test_coordinator_dispatcher import Clock

from runtime.engine.pages import KvCacheManager
from runtime.engine.running_requests import RunningRequests
from runtime.engine.sequence import RequestKey, Sequence
from runtime.engine.shares import Shares
from runtime.protocol.data import Hop, Route, Sampling

FIRST, SECOND, THIRD = "coordinator", "coordinator:2", "coordinator:3"
TOTAL = 100
ROUTE = Route(
    hops=(Hop(node="a", first=0, end=1),),
    sampling=Sampling(temperature=0.0, top_p=1.0, top_k=0, seed=0, max_tokens=9),
    prompt_tokens=1,
)


class Rig:
    """A stage of one layer and pages of one token."""

    def __init__(self, coordinators: int = 2) -> None:
        self.running_requests = RunningRequests()
        self.kv_manager = KvCacheManager(pages=TOTAL, page_tokens=1, prepare=lambda pages: None)
        self.clock = Clock()
        self.shares = Shares(
            self.running_requests, coordinators=lambda: coordinators, clock=self.clock
        )
        self._requests = 0

    def sequence(self, coordinator: str, *, epoch: int = 0, request: int | None = None) -> Sequence:
        self._requests += 1
        return Sequence(
            key=RequestKey(request=self._requests if request is None else request, epoch=epoch),
            generation=1,
            route=replace(ROUTE, coordinator=coordinator),
            hop=0,
            arrival=self._requests,
        )

    def hold(self, coordinator: str, pages: int) -> None:
        sequence = self.sequence(coordinator)
        self.kv_manager.reserve(sequence.table, tokens=pages)
        self.running_requests.add(sequence)

    def refuse(self, sequence: Sequence, pages: int) -> None:
        self.shares.refuse(sequence, pages=pages, total=TOTAL)

    def kept_from(self, coordinator: str, *, epoch: int = 0) -> int:
        return self.shares.kept_from(self.sequence(coordinator, epoch=epoch))

    def elsewhere(self, *names: str) -> list[int]:
        return list(self.shares.elsewhere(names, total=TOTAL).values())


def test_what_a_coordinator_with_less_than_its_share_was_refused_is_kept_from_the_other() -> None:
    rig = Rig()
    rig.hold(FIRST, 70)
    rig.hold(SECOND, 20)
    rig.refuse(rig.sequence(SECOND, epoch=1), 15)
    assert rig.kept_from(FIRST) == 15
    assert rig.kept_from(SECOND) == 0


@pytest.mark.parametrize(("held", "asked", "kept"), [(20, 30, 30), (20, 31, 0), (0, 80, 80)])
def test_no_more_is_kept_than_an_equal_share_but_for_the_only_request_of_one(
    held: int, asked: int, kept: int
) -> None:
    rig = Rig()
    if held:
        rig.hold(SECOND, held)
    rig.refuse(rig.sequence(SECOND, epoch=1), asked)
    assert rig.kept_from(FIRST) == kept


def test_a_lone_coordinator_keeps_nothing_from_itself() -> None:
    rig = Rig(coordinators=1)
    rig.refuse(rig.sequence(FIRST, epoch=1), 80)
    assert rig.kept_from(SECOND) == 0
    assert rig.elsewhere(FIRST) == [0]


def test_who_was_begun_anew_more_often_goes_first_whatever_was_asked_first() -> None:
    rig = Rig()
    rig.refuse(rig.sequence(FIRST, epoch=1, request=5), 60)
    rig.refuse(rig.sequence(SECOND, epoch=2, request=6), 70)
    shares = rig.shares
    assert shares.kept_from(rig.sequence(SECOND, epoch=3, request=6)) == 0
    assert shares.kept_from(rig.sequence(FIRST, epoch=2, request=5)) == 0
    assert shares.kept_from(rig.sequence(FIRST, epoch=1, request=7)) == 70


def test_nothing_is_kept_for_who_got_it_or_does_not_ask_again() -> None:
    rig = Rig()
    sequence = rig.sequence(SECOND, epoch=1)
    rig.refuse(sequence, 30)
    rig.shares.admit(sequence)
    assert rig.kept_from(FIRST) == 0
    rig.refuse(rig.sequence(SECOND, epoch=1), 30)
    rig.clock.now += 10.0
    assert rig.kept_from(FIRST) == 0
    rig.refuse(rig.sequence(SECOND, epoch=1), 30)
    rig.shares.forget(SECOND)
    assert rig.kept_from(FIRST) == 0


def test_each_is_told_what_the_others_hold_and_wait_for_but_nothing_of_its_own_share() -> None:
    rig = Rig()
    rig.hold(FIRST, 40)
    rig.hold(SECOND, 10)
    assert rig.elsewhere(FIRST, SECOND) == [10, 40]
    rig.refuse(rig.sequence(SECOND, epoch=1), 25)
    assert rig.elsewhere(FIRST, SECOND) == [35, 40]
    rig.hold(FIRST, 40)
    assert rig.elsewhere(FIRST, SECOND) == [35, 50]


def test_of_three_each_has_a_third_to_itself() -> None:
    rig = Rig(coordinators=3)
    rig.hold(FIRST, 90)
    assert rig.elsewhere(FIRST, SECOND, THIRD) == [0, 67, 67]
