"""Whose pages are next when several coordinators want more than a stage has."""

from dataclasses import replace

import pytest
from test_coordinator_dispatcher import Clock

from runtime.engine.pages import PageBooks
from runtime.engine.residents import Residents
from runtime.engine.sequence import RequestKey, Sequence
from runtime.engine.shares import Shares
from runtime.protocol.routes import Hop, Route, Sampling

FIRST, SECOND, THIRD = "coordinator", "coordinator:2", "coordinator:3"
TOTAL = 100
ROUTE = Route(
    hops=(Hop(node="a", first=0, end=1),),
    sampling=Sampling(temperature=0.0, top_p=1.0, top_k=0, seed=0, max_tokens=9),
    prompt_tokens=1,
)


class House:
    """A stage of one layer and pages of one token."""

    def __init__(self, coordinators: int = 2) -> None:
        self.residents = Residents()
        self.books = PageBooks(pages=TOTAL, page_tokens=1, prepare=lambda pages: None)
        self.clock = Clock()
        self.shares = Shares(self.residents, coordinators=lambda: coordinators, clock=self.clock)
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
        self.books.reserve(sequence.table, tokens=pages)
        self.residents.add(sequence)

    def refuse(self, sequence: Sequence, pages: int) -> None:
        self.shares.refuse(sequence, pages=pages, total=TOTAL)

    def kept_from(self, coordinator: str, *, epoch: int = 0) -> int:
        return self.shares.kept_from(self.sequence(coordinator, epoch=epoch))

    def elsewhere(self, *names: str) -> list[int]:
        return list(self.shares.elsewhere(names, total=TOTAL).values())


def test_what_a_coordinator_with_less_than_its_share_was_refused_is_kept_from_the_other() -> None:
    house = House()
    house.hold(FIRST, 70)
    house.hold(SECOND, 20)
    house.refuse(house.sequence(SECOND, epoch=1), 15)
    assert house.kept_from(FIRST) == 15
    assert house.kept_from(SECOND) == 0


@pytest.mark.parametrize(("held", "asked", "kept"), [(20, 30, 30), (20, 31, 0), (0, 80, 80)])
def test_no_more_is_kept_than_an_equal_share_but_for_the_only_request_of_one(
    held: int, asked: int, kept: int
) -> None:
    house = House()
    if held:
        house.hold(SECOND, held)
    house.refuse(house.sequence(SECOND, epoch=1), asked)
    assert house.kept_from(FIRST) == kept


def test_a_lone_coordinator_keeps_nothing_from_itself() -> None:
    house = House(coordinators=1)
    house.refuse(house.sequence(FIRST, epoch=1), 80)
    assert house.kept_from(SECOND) == 0
    assert house.elsewhere(FIRST) == [0]


def test_who_was_begun_anew_more_often_goes_first_whatever_was_asked_first() -> None:
    house = House()
    house.refuse(house.sequence(FIRST, epoch=1, request=5), 60)
    house.refuse(house.sequence(SECOND, epoch=2, request=6), 70)
    shares = house.shares
    assert shares.kept_from(house.sequence(SECOND, epoch=3, request=6)) == 0
    assert shares.kept_from(house.sequence(FIRST, epoch=2, request=5)) == 0
    assert shares.kept_from(house.sequence(FIRST, epoch=1, request=7)) == 70


def test_nothing_is_kept_for_who_got_it_or_does_not_ask_again() -> None:
    house = House()
    sequence = house.sequence(SECOND, epoch=1)
    house.refuse(sequence, 30)
    house.shares.admit(sequence)
    assert house.kept_from(FIRST) == 0
    house.refuse(house.sequence(SECOND, epoch=1), 30)
    house.clock.now += 10.0
    assert house.kept_from(FIRST) == 0
    house.refuse(house.sequence(SECOND, epoch=1), 30)
    house.shares.forget(SECOND)
    assert house.kept_from(FIRST) == 0


def test_each_is_told_what_the_others_hold_and_wait_for_but_nothing_of_its_own_share() -> None:
    house = House()
    house.hold(FIRST, 40)
    house.hold(SECOND, 10)
    assert house.elsewhere(FIRST, SECOND) == [10, 40]
    house.refuse(house.sequence(SECOND, epoch=1), 25)
    assert house.elsewhere(FIRST, SECOND) == [35, 40]
    house.hold(FIRST, 40)
    assert house.elsewhere(FIRST, SECOND) == [35, 50]


def test_of_three_each_has_a_third_to_itself() -> None:
    house = House(coordinators=3)
    house.hold(FIRST, 90)
    assert house.elsewhere(FIRST, SECOND, THIRD) == [0, 67, 67]
