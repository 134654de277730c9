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


@pytest.mark.parametrize(
    ("changes", "readings", "told"),
    [
        ({}, [*[11] * 5, *[1] * 8], [("firing", 30), ("resolved", 110)]),
        ({}, [11, 11, 1, 11, 11, 1], []),
        ({}, [11, 9, 9, 9], [("firing", 30)]),
        ({}, [*[11] * 4, *[9, 11] * 20, *[9] * 30], [("firing", 30)]),
        ({}, [*[11] * 4, *[9, 11] * 20, *[8] * 7], [("firing", 30), ("resolved", 500)]),
        ({}, [*[11] * 4, *[None] * 7], [("firing", 30), ("resolved", 100)]),
        ({"for_s": 0, "resolve_s": 0}, [11, 1], [("firing", 0), ("resolved", 10)]),
    ],
    ids=["for long enough", "spikes", "pending between the marks", "between the marks", "good",
         "not there any more", "without delays"],
)  # fmt: skip
def test_it_fires_and_ends_when_it_was_bad_and_good_for_long_enough(
    changes: dict[str, Any], readings: list[float | None], told: list[tuple[str, float]]
) -> None:
    assert Watch(**changes).read(*readings).told == told


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
