"""What `helixweb up` has done in a process of its own before the site's processes start, and what
`/readyz` then says of the database, the migrations, the broker and the worker."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError
from django.test import Client

from helixweb.operations import health
from helixweb.operations.models import Pulse
from helixweb.operations.tasks import READY_FILE, beat_pulse, say_ready
from helixweb.versions import product_version
from tests.e2e import blank_database
from tests.helixweb.looking import answered
from tests.programs import run_python

PREPARE = ["-m", "helixweb.operations.prepare", "--migrate", "--coordinator-of", ""]


def prepared(data: Path) -> dict[str, Any]:
    """The answer of one start of a site with that data folder."""
    settings = {"HELIX_DATA_DIR": str(data), "DJANGO_SETTINGS_MODULE": "helixweb.settings"}
    return json.loads(run_python(*PREPARE, environ=settings).stdout)


@pytest.mark.processes
def test_a_coordinator_that_the_site_does_not_know_gets_a_token_at_the_next_start(
    tmp_path: Path, blank_sqlite: Path
) -> None:
    data = tmp_path / "data"
    blank_database.put(blank_sqlite, data)
    assert prepared(data)["cluster"] == "main"
    membership = {"credential": "hlxn_of_another_site", "cluster": "main"}
    (data / "coordinator").mkdir(exist_ok=True)
    (data / "coordinator" / "identity.json").write_text(json.dumps({"membership": membership}))
    again = prepared(data)
    assert again["migrated"] == 0
    assert again["coordinator_token"].startswith("hlxj_")


@pytest.mark.django_db
def test_a_site_without_a_worker_is_ready_and_says_that_it_has_none() -> None:
    answer = answered(Client().get("/readyz"), 200)
    assert answer.json() == {
        "status": "ok",
        "checks": {
            "database": "ok", "migrations": "ok", "broker": "ok", "worker": "away", "disk": "ok",
        },
    }  # fmt: skip


@pytest.mark.django_db
def test_a_worker_is_there_as_long_as_it_beats() -> None:
    beat_pulse()
    beat_pulse()
    pulse = Pulse.objects.get()
    assert pulse.version == product_version()
    assert health.worker_state(pulse.at) == "ok"
    assert health.worker_state(pulse.at + health.SILENT_AFTER + timedelta(seconds=1)) == "away"
    assert Client().get("/readyz").json()["checks"]["worker"] == "ok"


@pytest.mark.django_db
@pytest.mark.parametrize("status", ["migrations pending", "database away"])
def test_a_database_that_is_unready_is_named(monkeypatch: pytest.MonkeyPatch, status: str) -> None:
    def is_pending() -> bool:
        if status == "database away":
            raise OperationalError("connection refused")
        return True

    monkeypatch.setattr(health, "has_pending_migrations", is_pending)
    answer = answered(Client().get("/readyz"), 503)
    assert answer.json()["status"] == status
    assert answer.json()["checks"]["worker"] == "away"


@pytest.mark.django_db
def test_a_full_disk_is_named_and_takes_no_page_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "LEAST_FREE_BYTES", 1 << 62)
    answer = answered(Client().get("/readyz"), 200)
    assert answer.json()["checks"]["disk"] == "full"


def test_a_broker_that_is_away_is_told_by_its_own_words(settings: Any, tmp_path: Path) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    assert health.broker_state() == "away"
    assert "127.0.0.1:1" in health.broker_fault()
    settings.REDIS_URL = ""
    settings.CELERY_BROKER_TRANSPORT_OPTIONS = {"data_folder_out": str(tmp_path / "gone")}
    assert str(tmp_path / "gone") in health.broker_fault()


def test_a_ready_worker_touches_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(READY_FILE, str(tmp_path / "ready"))
    say_ready()
    assert (tmp_path / "ready").exists()
