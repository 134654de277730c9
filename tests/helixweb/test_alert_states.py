"""When an alert fires and when it is over, in virtual time."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from helixweb.alerting.kinds import Kind
from helixweb.alerting.models import Alert, AlertRule
from helixweb.alerting.states import FLAPS_WITHIN, begin, follow, resolve_after

START = datetime(2026, 1, 1, tzinfo=UTC)


def rule(**changes: Any) -> AlertRule:
    """Bad above 10, good at 8."""
    usual = {"kind": Kind.TTFT, "threshold": 10, "clears_at": 8, "for_s": 30, "resolve_s": 60}
    return AlertRule(**{**usual, **changes})


class Watch:
    """One subject whose readings come every ten seconds; notes what is told of it."""

    def __init__(self, **changes: Any) -> None:
        self.rule = rule(**changes)
        self.now_s = 0
        self.open: Alert | None = None
        self.last: Alert | None = None
        self.told: list[tuple[str, float]] = []

    def read(self, *values: float | None) -> "Watch":
        for value in values:
            self._one(value, START + timedelta(seconds=self.now_s))
            self.now_s += 10
        return self

    def _one(self, value: float | None, now: datetime) -> None:
        alert, before = self.open or Alert(rule=self.rule), self.open and self.open.state
        if self.open is not None:
            is_kept = follow(alert, value, now=now)
        else:
            is_kept = value is not None and begin(alert, value, before=self.last, now=now)
        self.open = alert if is_kept else None
        if self.open is not None and alert.state not in ("pending", before):
            self.told.append((alert.state, self.now_s))
        if self.open is not None and alert.state == "resolved":
            self.last, self.open = alert, None


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
    flapping = Watch(for_s=0)
    flapping.read(*([11] * 6 + [1] * 12) * 333)
    assert len(flapping.told) <= 5
    calm = Watch(for_s=0)
    calm.read(*([11] * 6 + [1] * 200) * 5)
    assert len(calm.told) == 10
    assert all(told[0] == "firing" for told in calm.told[::2])


def test_who_was_calm_for_long_does_not_flap() -> None:
    over, soon, later = Alert(resolved_at=START, flaps=4), Alert(rule=rule()), Alert(rule=rule())
    assert begin(soon, 11, before=over, now=START + FLAPS_WITHIN)
    after = START + FLAPS_WITHIN + timedelta(seconds=1)
    assert begin(later, 11, before=over, now=after)
    assert (soon.flaps, later.flaps) == (5, 0)
    assert resolve_after(soon.flaps, rule()) == timedelta(seconds=1800)
    assert resolve_after(later.flaps, rule()) == timedelta(seconds=60)


@pytest.mark.parametrize(("value", "fires"), [(9, True), (10, False), (11, False)])
def test_what_runs_out_is_bad_below_its_threshold(value: float, fires: bool) -> None:
    alert = Alert(rule=rule(kind=Kind.KEY_EXPIRES, clears_at=10, for_s=0))
    assert begin(alert, value, before=None, now=START) is fires


def test_a_rule_without_delays_fires_and_ends_at_once() -> None:
    watch = Watch(for_s=0, resolve_s=0).read(11, 1)
    assert watch.told == [("firing", 0), ("resolved", 10)]
