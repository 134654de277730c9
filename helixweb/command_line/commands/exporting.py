"""`helixweb export`: the inventory as a file."""

import argparse
from pathlib import Path

from helixweb.command_line import exit_codes
from helixweb.command_line.completion_words import cluster_names
from helixweb.command_line.registry import COMMANDS, Subparsers, completed_by
from helixweb.command_line.reporting import BadUsage
from helixweb.command_line.resolve import cluster_named
from helixweb.command_line.session import Session, connection_options, run_action
from helixweb.command_line.waiting import waiting_for

run = run_action
MEDIA = {"yaml": "application/yaml", "json": "application/json", "csv": "text/csv"}
KINDS = ("nodes", "links", "region_links")


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    parser = subparsers.add_parser(
        "export", help=COMMANDS["export"][1], parents=[connection_options()]
    )
    completed_by(parser.add_argument("--cluster", help="this one only"), cluster_names)
    parser.add_argument("--format", choices=tuple(MEDIA), help="(yaml, or as FILE ends)")
    parser.add_argument("--kind", choices=KINDS, help="which rows, for CSV")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="(stdout)")
    parser.set_defaults(act=_export)
    return parser


def _export(site: Session, arguments: argparse.Namespace) -> int:
    named = format_of(arguments.output) if arguments.output else None
    format_ = arguments.format or ("json" if site.as_json else named) or "yaml"
    if (format_ == "csv") != (arguments.kind is not None):
        raise BadUsage(f"CSV has rows of one kind: --format csv --kind {'|'.join(KINDS)}")
    query = {"kind": arguments.kind}
    if arguments.cluster is not None:
        query["cluster"] = cluster_named(site.client, arguments.cluster)["id"]
    with waiting_for("reading the site", site.around):
        answer = site.client.send(
            "GET", "/export/", query=query, headers={"Accept": MEDIA[format_]}
        )
    if arguments.output is None:
        site.around.out.write(answer.text)
        site.around.out.write("" if answer.text.endswith("\n") else "\n")
    else:
        arguments.output.write_bytes(answer.content)
    return exit_codes.OK


def format_of(path: Path) -> str | None:
    """As its name ends."""
    return {".csv": "csv", ".json": "json", ".yaml": "yaml", ".yml": "yaml"}.get(
        path.suffix.lower()
    )
