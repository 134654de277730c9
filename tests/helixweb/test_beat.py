"""Beat sends what is due at intervals, whatever becomes of the machine's clock."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from celery.utils.imports import symbol_by_name
from django.conf import settings

from helixweb.beat import Scheduler
from helixweb.celery import app

OFTEN = {name for name, entry in settings.CELERY_BEAT_SCHEDULE.items() if entry["schedule"] <= 5.0}
HOUR = timedelta(hours=1)


class Beat:
    """A scheduler whose clock is moved by hand, and by its own waiting; `sent`: names of entries.

    Nothing goes to a broker.
    """

    def __init__(self, schedule_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._file = schedule_file
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.sent: list[str] = []
        monkeypatch.setattr(app, "now", lambda: self.now)
        self.restart()

    def restart(self) -> None:
        self._scheduler: Any = Scheduler(app=app, schedule_filename=str(self._file))
        self._scheduler.producer = None
        self._scheduler.apply_entry = lambda entry, producer: self.sent.append(entry.name)

    def end(self) -> None:
        self._scheduler.close()

    def run(self, seconds: float) -> list[str]:
        """What is sent meanwhile."""
        self.sent.clear()
        ends = self.now + timedelta(seconds=seconds)
        while self.now < ends:
            self.now += timedelta(seconds=max(self._scheduler.tick(), 0.001))
        return list(self.sent)


@pytest.fixture
def beat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Beat:
    return Beat(tmp_path / "schedule", monkeypatch)


def assert_all_goes_on(sent: list[str]) -> None:
    """Within a minute."""
    for name in OFTEN:
        every_s = settings.CELERY_BEAT_SCHEDULE[name]["schedule"]
        assert 0.8 * 60 / every_s <= sent.count(name) <= 60 / every_s + 1, name


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("moved", [timedelta(0), -HOUR, HOUR, -timedelta(days=400)])
def test_it_goes_on_where_the_clock_is_set(beat: Beat, moved: timedelta, restarts: bool) -> None:
    assert symbol_by_name(app.conf.beat_scheduler) is Scheduler
    assert {"tend-deployments", "reap-lost-jobs"} <= OFTEN
    beat.run(60.0)
    if restarts:
        beat.end()
    beat.now += moved
    if restarts:
        beat.restart()
    assert_all_goes_on(beat.run(60.0))
