"""`helixweb cluster`: machines that serve together."""

import argparse

from helixweb.client import Row
from helixweb.command_line import exit_codes
from helixweb.command_line.completion_words import cluster_names
from helixweb.command_line.output import moment, number, pairs, table
from helixweb.command_line.registry import COMMANDS, Subparsers, completed_by
from helixweb.command_line.reporting import BadUsage
from helixweb.command_line.resolve import cluster_named
from helixweb.command_line.session import Session, connection_options, given, positive, run_action

run = run_action


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    parser = subparsers.add_parser("cluster", help=COMMANDS["cluster"][1])
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    common = [connection_options()]
    actions.add_parser("list", help="all clusters", parents=common).set_defaults(act=_list)
    add = actions.add_parser("add", help="make a cluster", parents=common)
    add.add_argument("name")
    add.set_defaults(act=_add)
    edit = actions.add_parser("edit", help="change a cluster", parents=common)
    edit.add_argument("--name", help="another name")
    for one, act in (
        (actions.add_parser("show", help="one cluster", parents=common), _show),
        (edit, _edit),
        (actions.add_parser("remove", help="remove it with all in it", parents=common), _remove),
    ):
        completed_by(one.add_argument("cluster", help="its name or id"), cluster_names)
        one.set_defaults(act=act)
    for one in (add, edit):
        one.add_argument("--coordinator-region")
        one.add_argument("--prompt-tokens", type=positive, help="mean of a request")
        one.add_argument("--output-tokens", type=positive, help="mean of a request")
        one.add_argument("--replanning", choices=("automatic", "ask", "never"))
    return parser


def _list(site: Session, arguments: argparse.Namespace) -> int:
    rows = list(site.client.clusters.all())
    columns = ("ID", "NAME", "COORDINATOR IN", "PROMPT", "OUTPUT", "REPLANNING")
    lines = [
        (
            row["id"], row["name"], row.get("coordinator_region"),
            number(row.get("mean_prompt_tokens"), digits=0),
            number(row.get("mean_output_tokens"), digits=0), row.get("replanning"),
        )
        for row in rows
    ]  # fmt: skip
    site.show(rows, table(columns, lines))
    return exit_codes.OK


def _show(site: Session, arguments: argparse.Namespace) -> int:
    _print(site, cluster_named(site.client, arguments.cluster))
    return exit_codes.OK


def _add(site: Session, arguments: argparse.Namespace) -> int:
    _print(site, site.client.clusters.create(_changes(arguments)))
    return exit_codes.OK


def _edit(site: Session, arguments: argparse.Namespace) -> int:
    row = cluster_named(site.client, arguments.cluster)
    body = _changes(arguments)
    if not body:
        raise BadUsage("say what to change; `helixweb cluster edit --help` lists it")
    tagged = site.client.clusters.get_tagged(row["id"])
    _print(site, site.client.clusters.update(row["id"], body, if_match=tagged.etag))
    return exit_codes.OK


def _changes(arguments: argparse.Namespace) -> Row:
    return given(
        name=arguments.name,
        coordinator_region=arguments.coordinator_region,
        mean_prompt_tokens=arguments.prompt_tokens,
        mean_output_tokens=arguments.output_tokens,
        replanning=arguments.replanning,
    )


def _remove(site: Session, arguments: argparse.Namespace) -> int:
    row = cluster_named(site.client, arguments.cluster)
    site.client.clusters.delete(row["id"])
    site.show({"removed": [row["name"]]}, f"removed {row['name']}")
    return exit_codes.OK


def _print(site: Session, row: Row) -> None:
    told = [
        ("id", row["id"]), ("name", row["name"]),
        ("coordinator in", row.get("coordinator_region")),
        ("prompt tokens", number(row.get("mean_prompt_tokens"), digits=0)),
        ("output tokens", number(row.get("mean_output_tokens"), digits=0)),
        ("replanning", row.get("replanning")), ("made", moment(row["created_at"])),
    ]  # fmt: skip
    site.show(row, pairs(told))
