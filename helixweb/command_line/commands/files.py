"""`helixweb export` and `import`: the inventory as a file, and a file as the inventory."""

import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, TypeAlias

from helixweb.command_line import exit_codes
from helixweb.command_line.command import command
from helixweb.command_line.failures import BadUsage, CommandFailed
from helixweb.command_line.output import cut, json_text, one_line
from helixweb.command_line.resolve import within
from helixweb.command_line.session import Row, Session
from helixweb.command_line.waiting import waiting_for

Format: TypeAlias = Literal["yaml", "json", "csv"]
Kind: TypeAlias = Literal["nodes", "links", "region_links"]
MEDIA = {"yaml": "application/yaml", "json": "application/json", "csv": "text/csv"}
_KINDS = "--kind nodes|links|region_links"
# The server needs longer for a large file than for a page.
LONGEST_S = 600.0
_SIGNS = {"add": "+", "change": "~", "remove": "-"}
_LONGEST_VALUE = 60


@command()
def export(
    site: Session,
    *,
    cluster: str | None = None,
    format_: Format | None = None,
    kind: Kind | None = None,
    output: Path | None = None,
) -> None:
    """Write the inventory as YAML, JSON or CSV.

    --format: (as FILE ends, else yaml)
    --kind: which rows a CSV file has
    -o --output FILE: (stdout)
    """
    named = format_ or ("json" if site.as_json else None) or _format_of(output)
    if (named == "csv") != (kind is not None):
        raise BadUsage(f"CSV has rows of one kind: --format csv {_KINDS}")
    query = {"kind": kind, "cluster": within(site, cluster)}
    with waiting_for("reading the site", site.around):
        answer = site.client.send("GET", "/export/", query=query, headers={"Accept": MEDIA[named]})
    if output is None:
        site.around.out.write(answer.text)
        site.around.out.write("" if answer.text.endswith("\n") else "\n")
    else:
        output.write_bytes(answer.content)


def _patiently(parser: ArgumentParser) -> None:
    parser.set_defaults(timeout=LONGEST_S)


@command(_patiently)
def import_file(
    site: Session,
    file: Path,
    *,
    format_: Format | None = None,
    kind: Kind | None = None,
    cluster: str | None = None,
    prune: bool = False,
    yes: bool = False,
    check: bool = False,
) -> int | None:
    """Compare a file with the site, and make the site so.

    Shows what the file changes, asks, and applies it.

    file: YAML, JSON or CSV; - reads stdin
    --format: (as FILE ends, else yaml)
    --kind: which rows a CSV file has
    --prune: remove rows that the file's sections leave out
    -y --yes: do it without asking
    --check: only compare; exit code 7 if the site differs
    """
    content = _content(site, file)
    named = format_ or _format_of(file)
    if named == "csv" and kind is None:
        raise BadUsage(f"say which rows the CSV file has: {_KINDS}")
    if named != "csv" and (kind or cluster) is not None:
        raise BadUsage("--kind and --cluster are for CSV; a document says it itself")
    query = {"prune": prune or None, "kind": kind, "cluster": within(site, cluster)}
    headers = {"Content-Type": MEDIA[named]}

    def ask(what: str, **more: Any) -> Row:
        with waiting_for(what, site.around):
            outcome: Row = site.client.call(
                "POST", "/import/", query={**query, **more}, content=content, headers=headers
            )
            return outcome

    def show(outcome: Row) -> None:
        site.around.say(json_text(outcome) if site.as_json else "\n".join(lines(outcome)))

    outcome = ask("comparing with the site", dry_run=True)
    if check or not outcome["steps"]:
        show(outcome)
        return exit_codes.DIFFERS if outcome["steps"] else exit_codes.OK
    if not site.as_json:
        show(outcome)
    if not yes:
        _agree(site, file)
    outcome = ask("making the site so", expect=outcome["digest"])
    site.show(outcome, "done")
    return None


def _format_of(path: Path | None) -> str:
    """Format of a file by its suffix."""
    end = path.suffix.lower().removeprefix(".") if path else ""
    return end if end in MEDIA else "yaml"


def _content(site: Session, file: Path) -> bytes:
    if str(file) != "-":
        return file.read_bytes()
    typed = site.around.input
    return typed.buffer.read() if typed is sys.stdin else typed.read().encode()


def _agree(site: Session, file: Path) -> None:
    """Ask for consent. Raises BadUsage without a terminal, CommandFailed if the answer is no."""
    around = site.around
    if str(file) == "-" or not around.input.isatty():
        raise BadUsage("there is no terminal to ask on; give --yes, or --check to compare only")
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
        counted = [f"{count[word]:,} {word}" for word in _SIGNS if count[word]]
        yield f"{count['kind'].replace('_', ' ')}: {', '.join(counted)}"


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
