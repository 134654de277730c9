"""`helixweb doctor`: what is wrong with the site on this machine, and what to do."""

from dataclasses import asdict
from pathlib import Path

from django.conf import settings

from helixweb.command_line import exit_codes
from helixweb.command_line.command import command
from helixweb.command_line.failures import CommandFailed
from helixweb.command_line.numbers import Port
from helixweb.command_line.surroundings import Surroundings
from helixweb.operations import site
from helixweb.operations.doctor.findings import Finding, State, failed
from helixweb.places import Addresses

_MARKS = {State.OK: "ok", State.NOTE: "note", State.WARNING: "warn", State.FAILED: "FAIL"}


@command(connects=False)
def doctor(
    around: Surroundings,
    *,
    data: Path | None = None,
    port: Port | None = None,
    coordinator_port: Port | None = None,
    json: bool = False,
) -> int:
    """Look for what is wrong.

    Look at Python, data folder, disk, settings, database, migrations, broker, worker, clocks,
    ports, certificate, coordinators and agents, and say what to do. The exit code is 0 if nothing
    failed.

    --data DIR: data folder of the site (HELIX_DATA_DIR)
    --port: of the web (as `up` last ran it, else 8000)
    --coordinator-port: of the coordinator (so, or 8100)
    --json: the findings as a JSON list
    """
    findings: list[Finding] = []

    def tell(finding: Finding) -> None:
        findings.append(finding)
        if not json:
            around.say(
                f"{_MARKS[finding.state]:<5} {finding.check:<12} {finding.said}"
                + (f"\n{'':<18} -> {finding.remedy}" if finding.remedy else "")
            )

    try:
        with site.opened(data):
            from helixweb.operations.doctor.examination import examine

            stored = Addresses.kept_in(Path(settings.DATA_DIR))
            web_port = port or stored.port
            for finding in examine(
                port=web_port,
                coordinator_port=coordinator_port or stored.coordinator_port,
            ):
                tell(finding)
    except CommandFailed as error:
        tell(failed("settings", str(error), "correct the setting that is named"))
    bad = sum(finding.state is State.FAILED for finding in findings)
    if json:
        around.say_json([asdict(finding) for finding in findings])
    else:
        warned = sum(finding.state is State.WARNING for finding in findings)
        around.say(f"\n{bad} failed, {warned} warnings, {len(findings)} findings.")
    return exit_codes.FAILED if bad else exit_codes.OK
