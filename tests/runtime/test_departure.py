"""A stage that was told to end: when it may, and what it says until then."""

import pytest
from coordinator_doubles import Clock

from runtime.engine.departure import Departure


class Leaving:
    """A departure whose stage looks at it each tenth of a second."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.is_told = True
        self.departure = Departure(lambda: self.is_told, within_s=20.0, clock=self.clock)

    def lasts_s(self, *, serves: bool, holds_for_s: float) -> float:
        began_s = self.clock.now
        while not self.departure.is_over(
            serves=serves, holds=self.clock.now - began_s < holds_for_s
        ):
            self.clock.now += 0.1
        return self.clock.now - began_s


@pytest.mark.parametrize(
    ("serves", "holds_for_s", "lasts_s"),
    [
        (False, 100.0, 0.0),  # all coordinators have retired what it served
        (True, 0.0, 2.0),  # nothing to lose: they had the time to hear of it
        (True, 5.0, 7.0),
        (True, 100.0, 20.0),  # nobody can do without it
    ],
)
def test_it_ends_when_it_is_not_needed_and_at_last_when_its_time_is_over(
    serves: bool, holds_for_s: float, lasts_s: float
) -> None:
    found = Leaving().lasts_s(serves=serves, holds_for_s=holds_for_s)
    assert found == pytest.approx(lasts_s, abs=0.15)


def test_nobody_leaves_who_was_not_told_to() -> None:
    leaving = Leaving()
    leaving.is_told = False
    assert not leaving.departure.is_over(serves=False, holds=False)
    assert not leaving.departure.is_to_be_said()


def test_it_is_said_again_several_times_a_second() -> None:
    leaving = Leaving()
    said = 0
    for _ in range(100):
        said += leaving.departure.is_to_be_said()
        leaving.clock.now += 0.01
    assert said == 5
