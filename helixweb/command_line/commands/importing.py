"""`helixweb import FILE`: show what the file changes, ask, and apply it."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from helixweb.client import Row
from helixweb.command_line import exit_codes
from helixweb.command_line.commands.exporting import KINDS, MEDIA, format_of
from helixweb.command_line.completion_words import cluster_names
from helixweb.command_line.output import cut, json_text, one_line
from helixweb.command_line.registry import COMMANDS, Subparsers, completed_by
from helixweb.command_line.reporting import BadUsage, CommandFailed
from helixweb.command_line.resolve import cluster_named
from helixweb.command_line.session import Session, connection_options, run_action
from helixweb.command_line.waiting import waiting_for

# The server needs longer for a large file than for a page.
LONGEST_S = 600.0
_SIGNS = {"add": "+", "change": "~", "remove": "-"}
_LABELS = {
    "models": "model", "clusters": "cluster", "profiles": "profile", "nodes": "node",
    "region_links": "region link", "links": "link", "shared_bandwidths": "shared bandwidth",
    "alert_rules": "alert rule",
}  # fmt: skip
_LONGEST_VALUE = 60


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    parser = subparsers.add_parser(
        "import", help=COMMANDS["import"][1], parents=[connection_options()]
    )
    parser.add_argument("file", help="YAML, JSON or CSV; - reads stdin")
    parser.add_argument("--format", choices=tuple(MEDIA), help="(as FILE ends, else yaml)")
    parser.add_argument("--kind", choices=KINDS, help="which rows a CSV file has")
    completed_by(parser.add_argument("--cluster", help="whose rows a CSV file has"), cluster_names)
    parser.add_argument(
        "--prune", action="store_true", help="remove rows that the file's sections leave out"
    )
    parser.add_argument("-y", "--yes", action="store_true", help="do it without asking")
    parser.add_argument(
        "--check", action="store_true", help=f"only compare; exit code {exit_codes.DIFFERS} if so"
    )
    parser.set_defaults(act=_import)
    return parser


def run(arguments: argparse.Namespace) -> int:
    arguments.timeout = max(arguments.timeout, LONGEST_S)
    return run_action(arguments)


def _import(site: Session, arguments: argparse.Namespace) -> int:
    content = _content(arguments)
    format_ = arguments.format or format_of(Path(arguments.file)) or "yaml"
    query: dict[str, Any] = {"prune": arguments.prune or None}
    if format_ == "csv":
        if arguments.kind is None:
            raise BadUsage(f"say which rows the CSV file has: --kind {'|'.join(KINDS)}")
        query["kind"] = arguments.kind
        if arguments.cluster is not None:
            query["cluster"] = cluster_named(site.client, arguments.cluster)["id"]
    elif arguments.kind is not None or arguments.cluster is not None:
        raise BadUsage("--kind and --cluster are for CSV; a document says it itself")

    def ask(what: str, **more: Any) -> Row:
        with waiting_for(what, site.around):
            answer = site.client.send(
                "POST",
                "/import/",
                query={**query, **more},
                content=content,
                headers={"Content-Type": MEDIA[format_]},
            )
            outcome: Row = site.client.decoded(answer)
            return outcome

    outcome = ask("comparing with the site", dry_run=True)
    if arguments.check:
        _show(site, outcome)
        return exit_codes.DIFFERS if outcome["steps"] else exit_codes.OK
    if outcome["steps"]:
        if not site.as_json:
            _show(site, outcome)
        _agree(site, arguments)
        outcome = ask("making the site so", expect=outcome["digest"])
        if not site.as_json:
            site.around.say("done")
            return exit_codes.OK
    _show(site, outcome)
    return exit_codes.OK


def _content(arguments: argparse.Namespace) -> bytes:
    if arguments.file != "-":
        return Path(arguments.file).read_bytes()
    typed = arguments.surroundings.input
    return typed.buffer.read() if typed is sys.stdin else typed.read().encode()


def _agree(site: Session, arguments: argparse.Namespace) -> None:
    """Ask for consent. Raises BadUsage without a terminal, CommandFailed if the answer is no."""
    if arguments.yes:
        return
    around = site.around
    if arguments.file == "-" or not around.input.isatty():
        raise BadUsage("nobody can be asked here; say --yes to do it or --check to compare only")
    around.err.write("Make the site so? [y/N] ")
    around.err.flush()
    if around.input.readline().strip().lower() not in ("y", "yes"):
        raise CommandFailed("nothing was done")


def _show(site: Session, outcome: Row) -> None:
    site.around.say(json_text(outcome) if site.as_json else "\n".join(lines(outcome)))


def lines(outcome: Row) -> Iterator[str]:
    """The diff: + for added, ~ for changed, - for removed rows."""
    if not outcome["steps"]:
        yield "the site says the same as the file"
        return
    cluster = ""
    for step in outcome["steps"]:
        if step["cluster"] != cluster:
            cluster = step["cluster"]
            yield f"cluster {one_line(cluster)}:" if cluster else "site:"
        sign, label = _SIGNS[step["action"]], _label(step["kind"])
        indent = "  " if cluster else ""
        yield f"{indent}{sign} {label} {one_line(step['name'])}{_values(step)}"
    if outcome["left_out"]:
        yield f"… and {outcome['left_out']:,} rows more"
    for count in outcome["counts"]:
        told = [f"{count[word]:,} {word}" for word in ("add", "change", "remove") if count[word]]
        yield f"{count['kind'].replace('_', ' ')}: {', '.join(told)}"


def _label(section: str) -> str:
    """The label of a section; newer servers may send unknown ones."""
    return _LABELS.get(section, section.replace("_", " "))


def _values(step: Row) -> str:
    if step["action"] == "remove":
        return ""
    pairs = []
    for key, value in step["after"].items():
        now = _short(value)
        if step["action"] == "change":
            pairs.append(f"{key} {_short(step['before'].get(key))} -> {now}")
        elif key not in ("name", "source", "target") and value not in (None, "", []):
            pairs.append(f"{key} {now}")
    return f": {', '.join(pairs)}" if pairs else ""


def _short(value: Any) -> str:
    return cut(one_line(value), _LONGEST_VALUE)
