"""`helixweb up`: the whole site, or roles of it, on this machine, until Ctrl-C."""

import contextlib
import json as json_text
import os
import socket
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from helixweb.command_line import exit_codes
from helixweb.command_line.command import argument, command
from helixweb.command_line.failures import CommandFailed
from helixweb.command_line.numbers import Port
from helixweb.command_line.surroundings import Surroundings
from helixweb.operations import site_processes
from helixweb.operations.data_folder import DataFolder
from helixweb.operations.roles import (
    BEAT,
    COORDINATOR,
    WEB,
    WORKER,
    Wanted,
    wanted_of,
)
from helixweb.operations.supervisor import Signals, Stopped, Supervisor, dies_with_its_parent
from helixweb.versions import product_version
from runtime.protocol.addresses import ADVERTISE_HELP
from runtime.protocol.join_tokens import TOKEN_HELP
from runtime.protocol.trust import CA_HELP, ca_file

UP_WITHIN_S = 300.0  # on a busy machine; what ends is noticed at once
PREPARED_WITHIN_S = 3600.0  # the migrations of a large database


@command(
    argument("--ca", type=ca_file, metavar="FILE", help=f"{CA_HELP} (HELIX_CA)"),
    argument("--advertise", default="", metavar="HOST[:PORT]", help=ADVERTISE_HELP),
    argument("--token", help=f"for a coordinator alone: {TOKEN_HELP}"),
    connects=False,
    epilog="Services: DATABASE_URL=postgres://… and REDIS_URL=redis://… instead of files.",
)
def up(
    around: Surroundings,
    *,
    data: Path | None = None,
    role: Sequence[Literal["web", "worker", "beat", "coordinator"]] | None = None,
    host: str = "",
    port: Port = 8000,
    url: str | None = None,
    tls_certificate: Path | None = None,
    tls_key: Path | None = None,
    login: str = "",
    cluster: str = "",
    coordinator_host: str = "",
    coordinator_port: Port = 8100,
    data_host: str = "",
    server: str | None = None,
    name: str = COORDINATOR,
    logs: Literal["files", "stderr"] = "files",
    check: bool = False,
    json: bool = False,
    **rest: Any,
) -> int:
    """Run the site.

    Run web site, worker and coordinator on this machine under one supervisor. The database is
    brought up to date first, with a backup of what it held.

    --data DIR: data folder (HELIX_DATA_DIR; made if need be)
    --role ROLE: only this part of the site: web, worker, beat, coordinator; may be repeated
        (default: all)
    --host: address to listen at, also of the coordinator: one of this machine, or 0.0.0.0 for all
        (default 127.0.0.1: this machine alone)
    --port: the web's port (default %(default)s)
    --url: where people reach the site (HELIX_URL), e.g. https://helix.example
    --tls-certificate PEM: speak https, with this chain
    --tls-key PEM: the key of the certificate
    --login USER: print a login link for this user
    --cluster NAME: whose coordinator runs here (the first)
    --coordinator-host: address for chat clients (that of --host)
    --coordinator-port: port for chat clients (%(default)s)
    --data-host: the coordinator's address for stages (so, too)
    --server: for a coordinator alone: URL of the site
    --name: for a coordinator alone: its name in the cluster (%(default)s)
    --logs: where processes log: DATA/logs, or stderr for systemd and containers (%(default)s)
    --check: end as soon as all is up, e.g. after an upgrade
    --json: say what came up as one JSON object
    """
    given = Namespace(
        role=role, host=host, port=port, url=url, tls_certificate=tls_certificate, tls_key=tls_key,
        login=login, cluster=cluster, coordinator_host=coordinator_host, data_host=data_host,
        coordinator_port=coordinator_port, server=server, name=name, logs=logs, check=check,
        json=json, **{"ca": None, "token": None, **rest},
    )  # fmt: skip
    wanted = wanted_of(given, around.environ)
    with (
        DataFolder.of(data, around.environ).locked(wanted.roles) as folder,
        contextlib.ExitStack() as held,
    ):
        sockets = [held.enter_context(bound) for bound in site_processes.bound(wanted)]
        try:
            _run(wanted, folder, around, sockets)
        except Stopped as stopped:
            return 128 + stopped.number
    return exit_codes.OK


def _run(
    wanted: Wanted, folder: DataFolder, around: Surroundings, sockets: list[socket.socket]
) -> None:
    """Run until stopped. Raises Stopped if that is before all is up, CommandFailed."""
    begin = time.monotonic()
    os.environ.update(site_processes.environment(wanted, folder))
    if WEB in wanted.roles:
        wanted.addresses.keep(folder.path)
    supervisor = Supervisor(say=around.warn)
    with Signals() as signals, contextlib.ExitStack() as ending:
        ending.callback(supervisor.stop)
        prepared = _prepared(wanted, signals) if wanted.needs_site else {}
        for child in site_processes.children_of(wanted, folder, sockets, prepared):
            supervisor.start(child)
        _wait_until_up(supervisor, signals)
        notify("READY=1")
        summarize(folder, prepared, around, seconds=time.monotonic() - begin, wanted=wanted)
        if wanted.check:
            return
        with contextlib.suppress(Stopped):
            while not all(one.given_up for one in supervisor.kept):
                signals.wait(supervisor.next_look_s())
                supervisor.tend()
            raise CommandFailed("nothing is running any more")
        notify("STOPPING=1")
        around.warn("stopping ...")


def _prepared(wanted: Wanted, signals: Signals) -> dict[str, Any]:
    """Run `prepare` and return its result. Raises CommandFailed, Stopped."""
    command = [sys.executable, "-m", "helixweb.operations.prepare"]
    if WEB in wanted.roles:
        command += ["--migrate", f"--login={wanted.login}"]
    if wanted.coordinator_here:
        command.append(f"--coordinator-of={wanted.cluster}")
    deadline = time.monotonic() + PREPARED_WITHIN_S
    # Out of the terminal's group: Ctrl-C is for `up`, which ends it.
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=dies_with_its_parent(),
    )
    try:
        while process.poll() is None:
            signals.wait(1.0)
            if time.monotonic() > deadline:
                raise CommandFailed(f"the database was not ready within {PREPARED_WITHIN_S:.0f} s")
    finally:
        process.kill()  # does nothing to one that has ended
        # A line or two, which the pipe holds until they are read.
        output, _ = process.communicate()
    if process.returncode != 0:
        raise CommandFailed("the site cannot start, see above")
    said: dict[str, Any] = json_text.loads(output)
    return said


def _wait_until_up(supervisor: Supervisor, signals: Signals) -> None:
    """Wait for all processes. Raises CommandFailed when one ends before it is up, Stopped."""
    waiting, deadline = [one.child for one in supervisor.kept], time.monotonic() + UP_WITHIN_S
    while waiting:
        signals.wait(0.1)
        for one in supervisor.kept:
            code = one.process.poll()
            if code is not None:
                where = f"; its log is {one.child.log}:" if one.child.log else ""
                raise CommandFailed(
                    f"{one.child.name} ended with exit code {code} before the site was up{where}\n"
                    f"{one.child.last_lines()}"
                )
        waiting = [child for child in waiting if not child.is_up()]
        if waiting and time.monotonic() > deadline:
            name, log = waiting[0].name, waiting[0].log or "what it said above"
            raise CommandFailed(f"the {name} was not up within {UP_WITHIN_S:.0f} s; see {log}")


def summarize(
    folder: DataFolder,
    prepared: dict[str, Any],
    around: Surroundings,
    *,
    seconds: float,
    wanted: Wanted,
) -> None:
    """Show addresses and folders, as text or as JSON."""
    has_coordinator = COORDINATOR in wanted.roles
    summary = {
        "version": product_version(),
        "data": str(folder.path),
        "url": wanted.url if WEB in wanted.roles else "",
        "openai_url": wanted.openai_url if has_coordinator else "",
        "login_link": f"{wanted.url}{prepared['login_link']}" if prepared.get("login_link") else "",
        "migrated": prepared.get("migrated", 0),
        "backup": prepared.get("backup", ""),
        "seconds": round(seconds, 2),
    }
    if wanted.json:
        around.say_json(summary)
        around.out.flush()
        return
    around.say(f"HelixWeb {summary['version']} is up after {seconds:.1f} s\n")
    for title, text in (
        ("Web site", summary["url"]),
        ("Log in (once)", summary["login_link"]),
        ("OpenAI API", summary["openai_url"]),
        ("Worker", "runs, with beat" if {WORKER, BEAT} <= wanted.roles else ""),
        ("Data", summary["data"]),
        ("Backup", summary["backup"]),
        ("Logs", folder.logs if wanted.logs == "files" else ""),
    ):
        if text:
            around.say(f"  {title:<15} {text}")
    if has_coordinator and find_spec("tokenizers") is None:
        around.say(
            "\n  To answer chats, the coordinator needs: pip install 'helixweb[coordinator]'"
        )
    checked = "That was the check; all of it ends again."
    around.say(f"\n{checked if wanted.check else 'Ctrl-C stops everything.'}")
    around.out.flush()


def notify(state: str) -> bool:
    """Send e.g. "READY=1"; whether a service manager listens."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return False
    if address.startswith("@"):  # in the abstract namespace
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        try:
            sender.sendto(state.encode(), address)
        except OSError:
            return False
    return True
