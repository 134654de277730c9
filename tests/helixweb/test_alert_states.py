"""When an alert fires and when it is over, in virtual time."""

from dataclasses import replace

import pytest

from helixweb.alerting.kinds import Bad
from helixweb.alerting.states import FLAPS_WITHIN_S, Limits, Standing, State, begin, follow

LIMITS = Limits(threshold=10, clears_at=8, for_s=30, resolve_s=60, bad=Bad.ABOVE)


class Watch:
    """One subject whose readings come every ten seconds; notes what is told of it."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.limits = limits
        self.now_s = 0.0
        self.open: Standing | None = None
        self.last: Standing | None = None
        self.told: list[tuple[str, float]] = []

    def read(self, *values: float | None) -> "Watch":
        for value in values:
            self._one(value)
            self.now_s += 10
        return self

    def _one(self, value: float | None) -> None:
        before = self.open
        if before is None:
            if value is not None:
                self.open = begin(value, self.limits, before=self.last, now_s=self.now_s)
        else:
            self.open = follow(before, value, self.limits, now_s=self.now_s)
        after = self.open
        if after is None:
            return
        if after.state is not State.PENDING and (before is None or before.state != after.state):
            self.told.append((after.state.value, self.now_s))
        if after.state is State.RESOLVED:
            self.last, self.open = after, None


def test_it_fires_once_it_was_bad_for_long_enough_and_ends_once_it_was_good_for_long_enough() -> (
    None
):
    watch = Watch().read(*[11] * 5, *[1] * 8)
    assert watch.told == [("firing", 30), ("resolved", 110)]


def test_a_spike_that_passes_before_its_time_is_told_to_nobody() -> None:
    watch = Watch().read(11, 11, 1, 11, 11, 1)
    assert watch.told == []
    assert watch.open is None


def test_between_the_two_marks_nothing_changes() -> None:
    """Hysteresis: a reading that dances around the threshold is one alert."""
    watch = Watch().read(*[11] * 4, *[9, 11] * 20)
    assert watch.told == [("firing", 30)]
    watch.read(*[9] * 30)
    assert watch.told == [("firing", 30)]
    watch.read(*[8] * 7)
    assert [state for state, _ in watch.told] == ["firing", "resolved"]


def test_a_pending_alert_goes_on_between_the_marks() -> None:
    assert Watch().read(11, 9, 9, 9).told == [("firing", 30)]


def test_what_is_not_there_any_more_counts_as_good() -> None:
    watch = Watch().read(*[11] * 4, *[None] * 7)
    assert [state for state, _ in watch.told] == ["firing", "resolved"]


def test_what_flaps_must_be_good_for_longer_each_time() -> None:
    """Bad for a minute, good for two: a thousand minutes of it are a handful of notices."""
    flapping = Watch(replace(LIMITS, for_s=0))
    flapping.read(*([11] * 6 + [1] * 12) * 333)
    assert len(flapping.told) <= 5
    calm = Watch(replace(LIMITS, for_s=0))
    calm.read(*([11] * 6 + [1] * 200) * 5)
    assert len(calm.told) == 10
    assert all(told[0] == "firing" for told in calm.told[::2])


def test_who_was_calm_for_long_does_not_flap() -> None:
    over = Standing(state=State.RESOLVED, since_s=0, resolved_s=100, flaps=4)
    soon = begin(11, LIMITS, before=over, now_s=100 + FLAPS_WITHIN_S)
    later = begin(11, LIMITS, before=over, now_s=101 + FLAPS_WITHIN_S)
    assert soon is not None
    assert later is not None
    assert (soon.flaps, later.flaps) == (5, 0)
    assert soon.resolve_after_s(LIMITS) == 1800
    assert later.resolve_after_s(LIMITS) == 60


@pytest.mark.parametrize(("value", "fires"), [(9, True), (10, False), (11, False)])
def test_what_runs_out_is_bad_below_its_threshold(value: float, fires: bool) -> None:
    limits = replace(LIMITS, bad=Bad.BELOW, clears_at=10, for_s=0)
    assert (begin(value, limits, before=None, now_s=0) is not None) is fires


def test_a_rule_without_delays_fires_and_ends_at_once() -> None:
    watch = Watch(replace(LIMITS, for_s=0, resolve_s=0)).read(11, 1)
    assert watch.told == [("firing", 0), ("resolved", 10)]
