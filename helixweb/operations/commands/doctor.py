"""`helixweb doctor`: what is wrong with the site on this machine, and what to do."""

import argparse
import json
from pathlib import Path

from django.conf import settings

from helixweb.command_line import exit_codes
from helixweb.command_line.registry import Subparsers
from helixweb.operations.commands import site
from helixweb.operations.doctor.findings import Finding, State, failed
from helixweb.operations.listening import port
from helixweb.operations.prepare import Fault
from helixweb.places import Addresses

_MARKS = {State.OK: "ok", State.NOTE: "note", State.WARNING: "warn", State.FAILED: "FAIL"}


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    parser = subparsers.add_parser(
        "doctor",
        help="look for what is wrong with the site on this machine",
        description="Look at Python, data folder, disk, settings, database, migrations, broker, "
        "worker, clocks, ports, certificate, coordinators and agents, and say what to do. The exit "
        "code is 0 if nothing failed.",
    )
    site.add_data_option(parser)
    parser.add_argument("--port", type=port, help="of the web (as `up` last ran it, else 8000)")
    parser.add_argument("--coordinator-port", type=port, help="of the coordinator (so, or 8100)")
    parser.add_argument("--json", action="store_true", help="the findings as a JSON list")
    return parser


def run(arguments: argparse.Namespace) -> int:
    around = arguments.surroundings
    findings: list[Finding] = []
    try:
        with site.opened(arguments.data):
            from helixweb.operations.doctor.examination import examine

            kept = Addresses.kept_in(Path(settings.DATA_DIR))
            for finding in examine(
                port=arguments.port or kept.port,
                coordinator_port=arguments.coordinator_port or kept.coordinator_port,
            ):
                findings.append(finding)
                if not arguments.json:
                    _tell(finding, around.say)
    except Fault as fault:
        findings.append(failed("settings", str(fault), "correct the setting that is named"))
        if not arguments.json:
            _tell(findings[-1], around.say)
    bad = sum(finding.state is State.FAILED for finding in findings)
    if arguments.json:
        around.say(json.dumps([finding.as_dict() for finding in findings]))
    else:
        warned = sum(finding.state is State.WARNING for finding in findings)
        around.say(f"\n{bad} failed, {warned} warnings, {len(findings)} findings.")
    return exit_codes.FAILED if bad else exit_codes.OK


def _tell(finding: Finding, say: "site.Say") -> None:
    say(f"{_MARKS[finding.state]:<5} {finding.check:<12} {finding.said}")
    if finding.remedy:
        say(f"{'':<18} -> {finding.remedy}")
