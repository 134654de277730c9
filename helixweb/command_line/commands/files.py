"""`helixweb export` and `import`: the inventory as a file, and a file as the inventory."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from helixweb.client import Row
from helixweb.command_line import exit_codes
from helixweb.command_line.command import CLUSTER, argument, command
from helixweb.command_line.failures import BadUsage, CommandFailed
from helixweb.command_line.output import cut, json_text, one_line
from helixweb.command_line.resolve import cluster_named
from helixweb.command_line.session import Session
from helixweb.command_line.waiting import waiting_for

MEDIA = {"yaml": "application/yaml", "json": "application/json", "csv": "text/csv"}
_FORMATS = {".csv": "csv", ".json": "json", ".yaml": "yaml", ".yml": "yaml"}
_KINDS = ("nodes", "links", "region_links")
_FORMAT = argument("--format", choices=tuple(MEDIA), help="(as FILE ends, else yaml)")
_KIND = argument("--kind", choices=_KINDS, help="which rows a CSV file has")
# The server needs longer for a large file than for a page.
LONGEST_S = 600.0
_SIGNS = {"add": "+", "change": "~", "remove": "-"}
_LONGEST_VALUE = 60


@command(
    CLUSTER,
    _FORMAT,
    _KIND,
    argument("-o", "--output", type=Path, metavar="FILE", help="(stdout)"),
)
def export(site: Session, arguments: Namespace) -> None:
    named = _format_of(arguments.output) if arguments.output else None
    format_ = arguments.format or ("json" if site.as_json else named) or "yaml"
    if (format_ == "csv") != (arguments.kind is not None):
        raise BadUsage(f"CSV has rows of one kind: --format csv --kind {'|'.join(_KINDS)}")
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


def _patiently(parser: ArgumentParser) -> None:
    parser.set_defaults(timeout=LONGEST_S)


@command(
    _patiently,
    argument("file", help="YAML, JSON or CSV; - reads stdin"),
    _FORMAT,
    _KIND,
    CLUSTER,
    argument("--prune", action="store_true", help="remove rows that the file's sections leave out"),
    argument("-y", "--yes", action="store_true", help="do it without asking"),
    argument(
        "--check", action="store_true", help=f"only compare; exit code {exit_codes.DIFFERS} if so"
    ),
)
def import_file(site: Session, arguments: Namespace) -> int | None:
    """Show what the file changes, ask, and apply it."""
    content = _content(arguments)
    format_ = arguments.format or _format_of(Path(arguments.file)) or "yaml"
    query: dict[str, Any] = {"prune": arguments.prune or None}
    if format_ == "csv":
        if arguments.kind is None:
            raise BadUsage(f"say which rows the CSV file has: --kind {'|'.join(_KINDS)}")
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

    def show(outcome: Row) -> None:
        site.around.say(json_text(outcome) if site.as_json else "\n".join(lines(outcome)))

    outcome = ask("comparing with the site", dry_run=True)
    if arguments.check:
        show(outcome)
        return exit_codes.DIFFERS if outcome["steps"] else exit_codes.OK
    if outcome["steps"]:
        if not site.as_json:
            show(outcome)
        _agree(site, arguments)
        outcome = ask("making the site so", expect=outcome["digest"])
        if not site.as_json:
            site.around.say("done")
            return None
    show(outcome)
    return None


def _format_of(path: Path) -> str | None:
    """By the end of its name."""
    return _FORMATS.get(path.suffix.lower())


def _content(arguments: Namespace) -> bytes:
    if arguments.file != "-":
        return Path(arguments.file).read_bytes()
    typed = arguments.surroundings.input
    return typed.buffer.read() if typed is sys.stdin else typed.read().encode()


def _agree(site: Session, arguments: Namespace) -> None:
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
        sign, label = _SIGNS[step["action"]], step["kind"].removesuffix("s").replace("_", " ")
        indent = "  " if cluster else ""
        yield f"{indent}{sign} {label} {one_line(step['name'])}{_values(step)}"
    if outcome["left_out"]:
        yield f"… and {outcome['left_out']:,} rows more"
    for count in outcome["counts"]:
        told = [f"{count[word]:,} {word}" for word in ("add", "change", "remove") if count[word]]
        yield f"{count['kind'].replace('_', ' ')}: {', '.join(told)}"


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
