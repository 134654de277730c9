"""`helixweb up`, as people start it: with nothing else, with services, and without a network."""

import contextlib
import json
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from helixweb.demo.processes import free_port
from helixweb.operations.asking import answers
from tests.certificate import write_certificate
from tests.e2e import blank_database
from tests.e2e.event_reader import EventReader
from tests.e2e.servers import PostgresServer, RedisServer
from tests.programs import NO_SERVICES, ROOT, helixweb
from tests.runtime.ended import has_ended
from tests.shaped_links.network import require_shaping
from tests.waiting import PATIENCE_S, until


class Up:
    """One `helixweb up` with its own ports; `told` is what it said when all was there."""

    def __init__(self, data: Path, environ: Mapping[str, str], words: Sequence[str]) -> None:
        self.port, self.coordinator_port = free_port(), free_port()
        known = {key: value for key, value in os.environ.items() if not key.startswith("HELIX_")}
        self.process = subprocess.Popen(
            [
                sys.executable, "-m", "helixweb.command_line", "up", "--data", str(data), "--json",
                "--port", str(self.port), "--coordinator-port", str(self.coordinator_port), *words,
            ],
            cwd=ROOT,
            env={**known, **environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.stop()
            pytest.fail("it ended before all was up, see what it said on stderr")
        self.told: dict[str, Any] = json.loads(line)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def children(self) -> dict[str, psutil.Process]:
        """Those that it started, by what they are."""
        words = {"web": "web_server", "worker": "celery", "coordinator": "coordinator"}
        found = psutil.Process(self.process.pid).children()
        return {
            name: child
            for child in found
            for name, word in words.items()
            if any(word in argument for argument in child.cmdline())
        }

    def checks(self) -> dict[str, str]:
        """What `/readyz` says of each part."""
        found: dict[str, str] = httpx.get(f"{self.url}/readyz", timeout=PATIENCE_S).json()["checks"]
        return found

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Its exit status."""
        self.process.send_signal(number)
        code = self.process.wait(PATIENCE_S)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code


@contextlib.contextmanager
def started(
    data: Path, environ: Mapping[str, str] = NO_SERVICES, words: Sequence[str] = ()
) -> Iterator[Up]:
    up = Up(data, environ, words)
    try:
        yield up
    finally:
        if up.process.poll() is None:
            up.stop()


@pytest.mark.e2e
def test_one_command_runs_a_site_that_mends_itself_and_ends_whole(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with started(data) as up:
        assert up.told["migrated"] > 0
        assert up.told["backup"] == ""
        assert httpx.get(up.told["login_link"], timeout=PATIENCE_S).status_code == 200
        until(lambda: set(up.checks().values()) == {"ok"}, "all parts are well")

        children = up.children()
        assert set(children) == {"web", "worker", "coordinator"}
        listening = {
            name: [
                tuple(connection.laddr)
                for connection in child.net_connections("tcp")
                if connection.status == psutil.CONN_LISTEN
            ]
            for name, child in children.items()
        }
        assert listening == {
            "web": [("127.0.0.1", httpx.URL(up.url).port)],
            "worker": [],
            "coordinator": [("127.0.0.1", up.coordinator_port)],
        }

        children["web"].kill()
        # Whoever asks meanwhile waits for the next: the supervisor keeps the port.
        assert httpx.get(f"{up.url}/healthz", timeout=PATIENCE_S).status_code == 200
        assert up.children()["web"].pid != children["web"].pid

        everyone = psutil.Process(up.process.pid).children(recursive=True)
        link = up.told["login_link"]
        page = EventReader(up.url, topics=["cluster:1"], login_link=link, silent_s=PATIENCE_S)
        with page:
            until(lambda: page.is_open, "a page's stream of events")
            assert up.stop(signal.SIGINT) == 0
        assert "Traceback" not in (data / "logs" / "web.log").read_text()
        until(lambda: all(map(has_ended, everyone)), "all have ended")
    secret = (data / "secret_key").read_text()
    assert (data / "secret_key").stat().st_mode & 0o777 == 0o600

    # As after its cluster was removed, or an older backup restored: it is nobody to the site.
    identity = data / "coordinator" / "identity.json"
    kept = json.loads(identity.read_text())
    kept["membership"]["credential"] = "hlxn_unknown"
    identity.write_text(json.dumps(kept))

    with started(data) as again:
        assert again.told["migrated"] == 0
        assert (data / "secret_key").read_text() == secret
        health = f"http://127.0.0.1:{again.coordinator_port}/health"
        until(lambda: answers(health, any_status=True), "the coordinator answers")
        assert again.stop() == 0


@pytest.mark.e2e
@pytest.mark.postgres
@pytest.mark.redis
@pytest.mark.long
def test_two_variables_give_it_postgresql_and_redis(
    tmp_path: Path, postgres: PostgresServer, redis: RedisServer
) -> None:
    services = {"DATABASE_URL": postgres.make_database("up_test"), "REDIS_URL": redis.url}
    with started(tmp_path / "data", services) as up:
        assert up.told["migrated"] > 0
        until(lambda: set(up.checks().values()) == {"ok"}, "all parts are well")
        assert not (tmp_path / "data" / "helixweb.sqlite3").exists()
        assert up.stop() == 0


LEADS_NOWHERE = """
set -e
ip link set lo up
ip link add out type veth peer name nowhere
for i in out nowhere; do sysctl -qw net.ipv6.conf.$i.disable_ipv6=1; done
ip link set out arp off; ip link set out up; ip link set nowhere up
ip addr add 198.51.100.1/24 dev out; ip route add default dev out
"$@" >&2
ip -s -j link show out
"$PYTHON" -c 'import socket; socket.socket(type=2).sendto(b"a", ("192.0.2.1", 9))'
ip -s -j link show out
"""


@pytest.mark.e2e
def test_it_needs_no_network_and_looks_for_none(tmp_path: Path, blank_sqlite: Path) -> None:
    """In a namespace with loopback and one interface that leads nowhere and counts packets; what
    it counts is shown at last by a packet to somewhere else."""
    require_shaping()
    blank_database.put(blank_sqlite, tmp_path / "data")
    command = [
        sys.executable, "-m", "helixweb.command_line", "up", "--data", str(tmp_path / "data"),
        "--check",
    ]  # fmt: skip
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", LEADS_NOWHERE, "sh", *command],
        cwd=ROOT,
        env={**os.environ, **NO_SERVICES, "OMP_NUM_THREADS": "1", "PYTHON": sys.executable},
        stdout=subprocess.PIPE,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    up, packet = (json.loads(line)[0]["stats64"]["tx"] for line in done.stdout.splitlines() if line)
    assert (up["packets"], up["errors"], up["dropped"]) == (0, 0, 0)
    assert packet["packets"] == 1


@pytest.mark.e2e
def test_it_speaks_https_with_a_certificate_of_its_own(tmp_path: Path, blank_sqlite: Path) -> None:
    blank_database.put(blank_sqlite, tmp_path / "data")
    certificate, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    write_certificate(certificate, key, host="localhost")
    tls = ("--tls-certificate", str(certificate), "--tls-key", str(key), "--role", "web")
    with started(tmp_path / "data", words=tls) as up:
        trusted = ssl.create_default_context(cafile=str(certificate))
        answer = httpx.get(
            f"https://localhost:{up.port}/login/", verify=trusted, timeout=PATIENCE_S
        )
        assert answer.status_code == 200
        assert "max-age" in answer.headers["Strict-Transport-Security"]
        assert "Secure" in answer.headers["Set-Cookie"]
        assert up.stop() == 0


@pytest.mark.e2e
def test_what_is_away_is_named_with_what_to_do(tmp_path: Path) -> None:
    for services, told in (
        ({"DATABASE_URL": "postgres://helix@127.0.0.1:1/helix"}, "check DATABASE_URL"),
        ({"REDIS_URL": "redis://127.0.0.1:1/0"}, "check REDIS_URL"),
        ({"DATABASE_URL": "mysql://somewhere"}, "postgres://USER:PASSWORD@HOST/NAME"),
    ):
        words = ("up", "--data", str(tmp_path), "--role", "web", "--port", str(free_port()))
        done = helixweb(*words, environ=services, expect=1)
        assert told in done.stderr
        assert "Traceback" not in done.stderr
