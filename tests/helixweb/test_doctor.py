"""`helixweb doctor`: each fault is found, named and given a remedy."""

import json
import os
import socket
import threading
from datetime import UTC, datetime, timedelta
from http.server import HTTPServer
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from helixweb.command_line.main import main
from helixweb.command_line.surroundings import Surroundings
from helixweb.inventory.models import Node
from helixweb.operations import health
from helixweb.operations.data_folder import DataFolder
from helixweb.operations.doctor import machine, members, reach, services
from helixweb.operations.doctor.findings import Finding, State
from helixweb.operations.models import Pulse
from helixweb.versions import product_version
from tests.answering import QuietHandler, answering
from tests.helixweb.process_doubles import FakeCluster

NOW = datetime(2026, 11, 22, tzinfo=UTC)


def one(findings: Any) -> Finding:
    (found,) = findings
    assert found.remedy or found.state is State.OK
    assert isinstance(found, Finding)
    return found


def test_a_data_folder_that_others_read_is_closed_by_the_remedy(tmp_path: Path) -> None:
    assert one(machine.data_folder(tmp_path / "none")).state is State.NOTE
    tmp_path.chmod(0o755)
    found = one(machine.data_folder(tmp_path))
    assert (found.state, found.remedy) == (State.WARNING, f"chmod 700 {tmp_path}")
    tmp_path.chmod(0o700)
    assert one(machine.data_folder(tmp_path)).state is State.OK
    assert "is of user" in one(machine.data_folder(tmp_path, user_id=4711)).said
    (tmp_path / "secret_key").touch()
    (tmp_path / "secret_key").chmod(0o644)
    assert [found.state for found in machine.data_folder(tmp_path)] == [State.OK, State.FAILED]


def test_a_driver_that_is_needed_and_not_installed_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "find_spec", lambda name: None)
    found = list(machine.packages("postgresql"))
    assert [finding.state for finding in found] == [State.NOTE, State.FAILED]
    assert "helixweb[postgres]" in found[1].remedy


def test_plain_http_is_for_this_machine_alone(settings: Any) -> None:
    for url, state in (
        ("http://127.0.0.1:8000", State.OK),
        ("http://helix.example", State.WARNING),
    ):
        settings.HELIX_URL = url
        assert one(services.site_settings()).state is state
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    assert one(services.broker()).state is State.FAILED, "it is away"


@pytest.mark.django_db
def test_migrations_that_are_due_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {found.state for found in services.database()} == {State.OK}
    monkeypatch.setattr(services, "pending", lambda: 3)
    assert "3 are due" in [found.said for found in services.database()]


@pytest.mark.django_db
def test_a_worker_is_missed_and_one_of_another_version_is_told() -> None:
    assert "never seen" in one(services.worker()).said
    pulse = Pulse.objects.create(
        host="box", process_id=1, version=product_version(), at=timezone.now()
    )
    assert one(services.worker()).state is State.OK
    pulse.version = "0.0.1"
    pulse.save()
    assert "0.0.1" in one(services.worker()).said
    pulse.at -= timedelta(minutes=5)
    pulse.save()
    assert "last heard of" in one(services.worker()).said


@pytest.mark.django_db
def test_a_worker_that_has_only_just_been_started_is_not_missed(
    tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.DATA_DIR, folder = tmp_path, DataFolder(path=tmp_path)
    monkeypatch.setattr(timezone, "now", lambda: NOW)
    now_s = NOW.timestamp()

    def age(path: Path, age_s: float) -> None:
        path.touch()
        os.utime(path, (now_s - age_s, now_s - age_s))

    with folder.locked({"worker"}):
        lock = tmp_path / "lock.worker"
        age(lock, 5)
        found = one(services.worker())
        assert found.state is State.NOTE
        assert "was started 5 s ago and does not take tasks yet" in found.said
        age(lock, services.STARTS_WITHIN_S + 5)
        assert one(services.worker()).state is State.FAILED
        age(folder.ready_file, 8)
        found = one(services.worker())
        assert (found.state, found.said) == (
            State.NOTE,
            "the worker started 8 s ago and did not beat yet",
        )
        age(folder.ready_file, health.SILENT_AFTER.total_seconds() + 5)
        assert one(services.worker()).state is State.FAILED
        age(lock, 5)  # of the worker before this one
        assert "does not take tasks yet" in one(services.worker()).said


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (machine.python((3, 10, 4)), State.FAILED),
        (machine.python(), State.OK),
        (machine.disk(Path("/tmp"), free_bytes=10**12), State.OK),
        (machine.disk(Path("/tmp"), free_bytes=10**9), State.WARNING),
        (machine.disk(Path("/tmp"), free_bytes=10**8), State.FAILED),
        ([services.skew("Redis", 0.4)], State.OK),
        ([services.skew("Redis", -30.0)], State.WARNING),
        ([reach.expiry(NOW + timedelta(days=90), now=NOW)], State.OK),
        ([reach.expiry(NOW + timedelta(days=5), now=NOW)], State.WARNING),
        ([reach.expiry(NOW - timedelta(days=1), now=NOW)], State.FAILED),
    ],
)
def test_little_room_wrong_clocks_and_old_certificates_are_told(found: Any, state: State) -> None:
    assert one(found).state is state


def test_a_site_that_does_not_answer_fails_with_why() -> None:
    found = one(reach.site("http://127.0.0.1:1"))
    assert found.state is State.FAILED
    assert "Connection refused" in found.said


def test_a_port_of_somebody_else_fails_and_a_free_one_does_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        taken.listen(0)
        port = taken.getsockname()[1]
        threading.Thread(target=lambda: taken.accept()[0].close(), daemon=True).start()
        assert one(reach.port("127.0.0.1", port, option="--port")).state is State.FAILED
    assert one(reach.port("127.0.0.1", port, option="--port")).state is State.OK


class _Coordinator(QuietHandler):
    """It has no plan to serve."""

    def do_GET(self) -> None:
        is_health = self.path == "/health"
        self.answer(503, b'{"status": "waiting"}') if is_health else self.answer(404, b"{}")

    def date_time_string(self, timestamp: float | None = None) -> str:
        return "Sun, 01 Nov 2026 00:00:00 GMT"


def test_a_port_of_a_coordinator_is_ours() -> None:
    with answering(HTTPServer(("127.0.0.1", 0), _Coordinator)) as server:
        found = one(reach.port("127.0.0.1", server.server_port, option="--coordinator-port"))
    assert (found.state, "used by this site" in found.said) == (State.OK, True)


@pytest.mark.parametrize("number", ["0", "99999", "x", "9" * 5000])
def test_a_port_that_is_none_is_refused(number: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--port", number]) == 2
    assert "give 1 to 65535" in capsys.readouterr().err


def test_the_age_of_a_date_header_is_no_skew() -> None:
    told = NOW.replace(microsecond=0)
    assert reach.ahead_s(told, now=told + timedelta(seconds=1.9)) == 0
    assert reach.ahead_s(told, now=told + timedelta(seconds=5)) == -3
    assert reach.ahead_s(told, now=told - timedelta(seconds=5)) == 5


def test_the_clock_of_a_coordinator_is_read_from_its_answer() -> None:
    with answering(HTTPServer(("127.0.0.1", 0), _Coordinator)) as server:
        skew_s = reach.clock_of(f"http://127.0.0.1:{server.server_port}/health")
    told = (datetime(2026, 11, 1, tzinfo=UTC) - datetime.now(UTC)).total_seconds()
    assert skew_s == pytest.approx(told, abs=60)


def test_members_that_are_lost_or_of_another_version_are_told(joined: FakeCluster) -> None:
    now = timezone.now()
    Node.unscoped.update(joined_at=now, last_seen_at=now, version=product_version())
    assert {found.state for found in members.agents(now)} == {State.OK}
    Node.unscoped.filter(name="mini").update(version="0.0.1")
    Node.unscoped.filter(name="laptop").update(last_seen_at=now - timedelta(minutes=9))
    found = list(members.agents(now))
    assert [finding.state for finding in found] == [State.WARNING, State.WARNING]
    assert "laptop" in found[0].said
    assert "1 run HelixWeb 0.0.1" in found[1].said
    unreached = [finding for finding in members.coordinators(now) if finding.state != State.OK]
    assert all(finding.remedy for finding in unreached)


@pytest.mark.django_db
def test_the_command_says_all_as_json_and_fails_when_something_does() -> None:
    out = StringIO()
    around = Surroundings(out=out, err=StringIO(), environ={})
    code = main(["doctor", "--json"], surroundings=around)
    findings = json.loads(out.getvalue())
    assert {finding["check"] for finding in findings} >= {
        "python", "data folder", "disk", "settings", "database", "migrations", "broker", "worker",
        "web site", "port", "coordinator",
    }  # fmt: skip
    assert any(finding["state"] == "failed" for finding in findings)
    assert code == 1
