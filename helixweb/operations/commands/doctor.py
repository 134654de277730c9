"""`helixweb doctor`: what is wrong with the site on this machine, and what to do."""

import json
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path

from django.conf import settings

from helixweb.command_line import exit_codes
from helixweb.command_line.command import argument, command
from helixweb.command_line.failures import CommandFailed
from helixweb.command_line.numbers import port
from helixweb.operations import site
from helixweb.operations.doctor.findings import Finding, State, failed
from helixweb.places import Addresses

_MARKS = {State.OK: "ok", State.NOTE: "note", State.WARNING: "warn", State.FAILED: "FAIL"}


@command(
    site.DATA_OPTION,
    argument("--port", type=port, help="of the web (as `up` last ran it, else 8000)"),
    argument("--coordinator-port", type=port, help="of the coordinator (so, or 8100)"),
    argument("--json", action="store_true", help="the findings as a JSON list"),
    connects=False,
    description="Look at Python, data folder, disk, settings, database, migrations, broker, "
    "worker, clocks, ports, certificate, coordinators and agents, and say what to do. The exit "
    "code is 0 if nothing failed.",
)
def doctor(arguments: Namespace) -> int:
    findings: list[Finding] = []

    def tell(finding: Finding) -> None:
        findings.append(finding)
        if not arguments.json:
            arguments.surroundings.say(
                f"{_MARKS[finding.state]:<5} {finding.check:<12} {finding.said}"
                + (f"\n{'':<18} -> {finding.remedy}" if finding.remedy else "")
            )

    try:
        with site.opened(arguments.data):
            from helixweb.operations.doctor.examination import examine

            stored = Addresses.kept_in(Path(settings.DATA_DIR))
            web_port = arguments.port or stored.port
            for finding in examine(
                port=web_port,
                coordinator_port=arguments.coordinator_port or stored.coordinator_port,
            ):
                tell(finding)
    except CommandFailed as error:
        tell(failed("settings", str(error), "correct the setting that is named"))
    bad = sum(finding.state is State.FAILED for finding in findings)
    if arguments.json:
        arguments.surroundings.say(json.dumps([asdict(finding) for finding in findings]))
    else:
        warned = sum(finding.state is State.WARNING for finding in findings)
        arguments.surroundings.say(f"\n{bad} failed, {warned} warnings, {len(findings)} findings.")
    return exit_codes.FAILED if bad else exit_codes.OK
