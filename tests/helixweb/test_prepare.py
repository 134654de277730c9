"""What `helixweb up` refuses before anything is started, what it has done in a process of its own
before the site's processes start, and what `/readyz` then says of its parts."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from datetime import timedelta
from io import StringIO
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.db import OperationalError
from django.test import Client

from helixweb.command_line.failures import CommandFailed
from helixweb.command_line.main import main, parser_for
from helixweb.command_line.surroundings import Surroundings
from helixweb.demo.processes import free_port
from helixweb.operations import health, site_processes
from helixweb.operations.commands.up import notify, summarize
from helixweb.operations.data_folder import DataFolder
from helixweb.operations.models import Pulse
from helixweb.operations.roles import Wanted, wanted_of
from helixweb.operations.supervisor import Child
from helixweb.operations.tasks import READY_FILE, beat_pulse, say_ready
from helixweb.places import Addresses, default_data_dir
from helixweb.versions import product_version
from runtime.coordinator.options import Options, parse_options
from runtime.protocol.addresses import Advertised, outward_address
from runtime.protocol.join_tokens import TOKEN_VARIABLE
from tests import programs
from tests.e2e import blank_database
from tests.helixweb.looking import answered, contains
from tests.programs import run_python

PREPARE = ["-m", "helixweb.operations.prepare", "--migrate", "--coordinator-of", ""]


def prepared(data: Path) -> dict[str, Any]:
    """The answer of one start of a site with that data folder."""
    settings = {"HELIX_DATA_DIR": str(data), "DJANGO_SETTINGS_MODULE": "helixweb.settings"}
    return json.loads(run_python(*PREPARE, environ=settings).stdout)


@pytest.mark.processes
def test_an_unknown_coordinator_gets_a_token(tmp_path: Path, blank_sqlite: Path) -> None:
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


def up(*words: str, data: Path, **environ: str) -> tuple[int, str]:
    """Exit code and what was said on stderr."""
    err = StringIO()
    around = Surroundings(out=StringIO(), err=err, environ=environ)
    code = main(["up", "--data", str(data), *words], surroundings=around)
    return code, err.getvalue()


def test_a_port_that_is_taken_is_named_with_the_option_that_chooses_another(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, said = up("--role", "web", "--port", str(port), data=tmp_path)
    assert code == 1
    contains(said, f"cannot listen on 127.0.0.1:{port}: Address already in use", "--port")
    with pytest.raises(CommandFailed, match=r"0\.0\.0\.0 for all"):
        site_processes.listen("192.0.2.1", 0, option="--port")  # of another machine


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--url", "helix.example"], "https://helix.example"),
        (["--port", "8100"], "two different ports"),
        (["--role", "coordinator"], "--server URL"),
        (["--role", "web", "--server", "http://x"], "--role coordinator without web"),
        (["--tls-key", "key.pem"], "give both"),
        (["--tls-key", "/no/key", "--tls-certificate", "/no/cert"], "/no/cert is no file"),
        (["--role", "web", "--host", "192.0.2.1"], "DATABASE_URL and REDIS_URL"),
    ],
)
def test_impossible_options_are_refused(words: list[str], told: str, tmp_path: Path) -> None:
    code, said = up(*words, data=tmp_path)
    assert code == 1
    assert told in said


def test_an_unusable_data_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    code, said = up(data=tmp_path / "file" / "data")
    assert code == 1
    contains(said, f"{tmp_path / 'file' / 'data'} cannot be made", "--data")
    assert DataFolder.of(tmp_path / "new", {}).path.stat().st_mode & 0o077 == 0
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    with pytest.raises(CommandFailed, match="cannot be written"):
        DataFolder.of(tmp_path, {})


def wanted(*words: str, **environ: str) -> Wanted:
    line = ["up", *words]
    return wanted_of(parser_for(line).parse_args(line), environ)


def started(wanted: Wanted, folder: Path, **prepared: str) -> list[Child]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(one) for one in site_processes.bound(wanted)]
        return site_processes.children_of(wanted, DataFolder.of(folder, {}), sockets, prepared)


def of_coordinator(wanted: Wanted, folder: Path) -> Options:
    """What its coordinator is started with."""
    (child,) = (child for child in started(wanted, folder) if child.name == "coordinator")
    return parse_options(list(child.command[4:]))


@pytest.mark.parametrize(
    ("roles", "names"),
    [
        (["web"], ["web"]),
        (["worker"], ["worker"]),
        (["beat"], ["beat"]),
        (["worker", "beat"], ["worker -B"]),
        (["web", "worker", "beat", "coordinator"], ["web", "worker -B", "coordinator"]),
    ],
)
def test_each_role_is_its_processes(roles: list[str], names: list[str], tmp_path: Path) -> None:
    site = wanted(*ports(), *(word for role in roles for word in ("--role", role)))
    children = started(site, tmp_path, coordinator_token="hlxj_x")
    assert [f"{c.name} -B" if "-B" in c.command else c.name for c in children] == names
    for child in children:
        if child.name == "coordinator":
            options = parse_options(list(child.command[4:]))
            assert (options.token, options.data_dir) == (None, tmp_path / "coordinator")
            assert child.env[TOKEN_VARIABLE] == "hlxj_x", "the process list shows no environment"
            assert options.server == site.local_url


@pytest.mark.parametrize(("environ", "trusts"), [({}, False), ({"HELIX_BEHIND_PROXY": "1"}, True)])
def test_a_coordinator_alone_has_its_token_and_proxies_by_the_environment(
    environ: dict[str, str], trusts: bool, tmp_path: Path
) -> None:
    words = ("--role", "coordinator", "--server", "http://helix.example")
    (child,) = started(wanted(*words, **environ, **{TOKEN_VARIABLE: "hlxj_x"}), tmp_path)
    assert child.env[TOKEN_VARIABLE] == "hlxj_x"
    proxies = parse_options(list(child.command[4:])).trusted_proxies
    assert any(ip_address("127.0.0.1") in network for network in proxies) == trusts


def test_a_coordinator_of_an_https_site_knows_it_by_its_name() -> None:
    site = wanted("--url", "https://helix.example/")
    assert (site.url, site.server_url) == ("https://helix.example", "https://helix.example")


def ports() -> list[str]:
    return ["--port", str(free_port()), "--coordinator-port", str(free_port())]


@pytest.mark.parametrize(
    ("words", "host"), [([], "127.0.0.1"), (["--host", "127.0.0.2"], "127.0.0.2")]
)
def test_the_coordinator_listens_as_the_site(words: list[str], host: str, tmp_path: Path) -> None:
    site = wanted(*ports(), *words)
    options = of_coordinator(site, tmp_path)
    assert {options.host, options.data_host} == {host}
    assert site.url == f"http://{host}:{site.port}"
    assert site.openai_url == f"http://{host}:{site.coordinator_port}/v1"


def test_a_site_that_listens_everywhere_names_an_address_that_others_dial(tmp_path: Path) -> None:
    try:
        outward = outward_address()
    except OSError:  # a machine without a default route is asked for its address
        with pytest.raises(CommandFailed, match="--host"):
            wanted("--host", "0.0.0.0")  # noqa: S104
        return
    site = wanted(*ports(), "--host", "0.0.0.0")  # noqa: S104
    assert site.url == f"http://{outward}:{site.port}"
    assert site.openai_url == f"http://{outward}:{site.coordinator_port}/v1"
    assert site.local_url == f"http://127.0.0.1:{site.port}"
    options = of_coordinator(site, tmp_path)
    assert (options.host, options.data_host) == ("0.0.0.0", outward)  # noqa: S104


def test_a_coordinator_alone_listens_on_the_way_to_its_site(tmp_path: Path) -> None:
    words = ["--role", "coordinator", "--server", "http://[::1]:8000", "--token", "hlxj_x"]
    words += ["--name", "second", "--coordinator-port", str(free_port())]
    options = of_coordinator(wanted(*words, "--advertise", "192.0.2.7:7000"), tmp_path)
    assert (options.host, options.data_host, options.name) == ("::1", "::1", "second")
    assert options.advertise == Advertised(host="192.0.2.7", port=7000)


def test_two_at_once_in_one_folder_are_told_apart_by_their_roles(tmp_path: Path) -> None:
    folder = DataFolder.of(tmp_path, {})
    with folder.locked(["web"]), folder.locked(["worker"]):
        code, said = up("--role", "web", "--port", "1", data=tmp_path)
    assert code == 1
    contains(said, "runs the role web", str(tmp_path))


@pytest.mark.parametrize(
    ("words", "ending"), [([], "Ctrl-C stops everything."), (["--check"], "all of it ends again.")]
)
def test_people_are_told_how_it_goes_on(words: list[str], ending: str, tmp_path: Path) -> None:
    around = Surroundings(out=StringIO(), err=StringIO())
    site = wanted("--role", "worker", *words)
    summarize(DataFolder.of(tmp_path, {}), {}, around, seconds=1.0, wanted=site)
    assert isinstance(around.out, StringIO)
    assert around.out.getvalue().rstrip().endswith(ending)


def test_a_full_disk_is_told_before_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=4_000_000)
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    code, said = up(data=tmp_path)
    assert code == 1
    contains(said, "has 4.0 MB left", "make room")


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_migration_ends_all(number: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "helixweb.command_line", "up", "--data", str(tmp_path)]
    command += ports()
    environ = {**os.environ, "DATABASE_URL": "", "REDIS_URL": ""}
    with programs.started(command, env=environ, stderr=subprocess.PIPE, text=True) as process:
        said = process.stderr.readline()
        assert said.startswith("Applying")
        (prepare,) = psutil.Process(process.pid).children()
        assert "helixweb.operations.prepare" in prepare.cmdline()
        process.send_signal(number)
        assert process.wait(300) == 128 + number
        assert process.stderr.read() == ""
    assert not prepare.is_running()


def test_what_was_not_written_whole_is_not_believed(tmp_path: Path) -> None:
    folder = DataFolder.of(tmp_path, {})
    assert folder.coordinator_credential == ""
    folder.coordinator.mkdir()
    identity, kept = folder.coordinator / "identity.json", tmp_path / ".up.json"
    for unfinished in (
        "", "{", "[]", '{"membership": null}', '{"port": "8640"}', '{"url": "http://x"}',
    ):  # fmt: skip
        identity.write_text(unfinished)
        kept.write_text(unfinished)
        assert folder.coordinator_credential == ""
        assert Addresses.kept_in(tmp_path) == Addresses()
    identity.write_text('{"membership": {"credential": "hlxn_x", "cluster": "c"}}')
    assert (folder.coordinator_credential, folder.coordinator_cluster) == ("hlxn_x", "c")


@pytest.mark.processes
def test_other_commands_know_where_up_last_ran_the_site(tmp_path: Path) -> None:
    assert Addresses.kept_in(tmp_path) == Addresses()
    kept = wanted("--port", "8640", "--coordinator-port", "8641").addresses
    kept.keep(tmp_path)
    assert Addresses.kept_in(tmp_path) == kept
    assert (kept.url, kept.port, kept.coordinator_port) == ("http://127.0.0.1:8640", 8640, 8641)
    printed = "from django.conf import settings; print(settings.HELIX_URL)"
    environ = {name: value for name, value in os.environ.items() if name != "HELIX_URL"}
    environ |= {"HELIX_DATA_DIR": str(tmp_path), "DJANGO_SETTINGS_MODULE": "helixweb.settings"}
    done = subprocess.run(
        [sys.executable, "-c", printed], env=environ, capture_output=True, text=True, timeout=300
    )
    assert done.stdout.strip() == kept.url


def test_a_site_keeps_its_data_with_the_users_state_and_a_checkout_in_var(tmp_path: Path) -> None:
    home = Path("/home/ada")
    for given, folder in (
        ({}, "/home/ada/.local/state/helixweb"),
        ({"XDG_STATE_HOME": "/state"}, "/state/helixweb"),
        ({"XDG_STATE_HOME": "relative"}, "/home/ada/.local/state/helixweb"),
    ):
        assert default_data_dir(given, above=tmp_path, home=home) == Path(folder)
    for name in ("manage.py", "pyproject.toml"):
        (tmp_path / name).touch()
    assert default_data_dir({"XDG_STATE_HOME": "/state"}, above=tmp_path) == tmp_path / "var"


def test_systemd_is_told_when_it_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    assert not notify("READY=1")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        assert notify("READY=1")
        assert manager.recv(100) == b"READY=1"
