"""`helixweb node`: the machines of a cluster."""

import argparse
import uuid

from helixweb.client.generated import schemas
from helixweb.command_line import exit_codes
from helixweb.command_line.completion_words import cluster_names, node_names
from helixweb.command_line.output import NOTHING, moment, number, pairs, table
from helixweb.command_line.registry import COMMANDS, Subparsers, completed_by
from helixweb.command_line.reporting import BadUsage
from helixweb.command_line.resolve import cluster_named, node_named
from helixweb.command_line.session import Session, connection_options, positive, run_action

run = run_action


def add_parser(subparsers: Subparsers) -> argparse.ArgumentParser:
    parser = subparsers.add_parser("node", help=COMMANDS["node"][1])
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    common = [connection_options(), _cluster_option()]
    listing = actions.add_parser("list", help="all nodes, or a cluster's", parents=common)
    listing.add_argument("--state", choices=("declared", "online", "lost"))
    listing.set_defaults(act=_list)
    show = actions.add_parser("show", help="one node", parents=common)
    add = actions.add_parser("add", help="declare a node", parents=common)
    edit = actions.add_parser("edit", help="change a node", parents=common)
    remove = actions.add_parser("remove", help="remove nodes and their links", parents=common)
    token = actions.add_parser("token", help="a one-time join command", parents=common)
    for one, act in ((show, _show), (edit, _edit)):
        completed_by(one.add_argument("node", help="its name or id"), node_names)
        one.set_defaults(act=act)
    add.add_argument("name")
    add.set_defaults(act=_add)
    edit.add_argument("--name", help="another name; not for nodes that have joined")
    edit.add_argument("--tag", action="append", default=[], help="give it this tag")
    edit.add_argument("--no-tag", action="append", default=[], help="take this tag away")
    for one in (add, edit):
        one.add_argument("--region")
        one.add_argument("--profile", help="the compute profile it has")
        one.add_argument("--price", type=positive, help="per hour, where not its profile's")
    completed_by(remove.add_argument("nodes", nargs="+", metavar="node"), node_names)
    remove.set_defaults(act=_remove)
    token.add_argument("--role", choices=("node", "coordinator"), default="node")
    token.set_defaults(act=_token)
    return parser


def _cluster_option() -> argparse.ArgumentParser:
    parent = argparse.ArgumentParser(add_help=False)
    completed_by(parent.add_argument("--cluster", help="its name or id"), cluster_names)
    return parent


def _list(site: Session, arguments: argparse.Namespace) -> int:
    names = {one["id"]: one["name"] for one in site.client.clusters.all()}
    if arguments.cluster is None:
        rows = list(site.client.nodes.all())
    else:
        cluster = cluster_named(site.client, arguments.cluster)
        rows = list(site.client.nodes.all(cluster=cluster["id"]))
    if arguments.state is not None:
        rows = [row for row in rows if row["state"] == arguments.state]
    columns = ("NAME", "CLUSTER", "STATE", "REGION", "PROFILE", "GPUS", "LAST SEEN", "TAGS")
    lines = [
        (
            row["name"], names.get(row["cluster"]), row["state"], row.get("region"),
            row.get("profile_name"), gpus(row), moment(row["last_seen_at"]), row["tags"],
        )
        for row in rows
    ]  # fmt: skip
    site.show(rows, table(columns, lines))
    return exit_codes.OK


def gpus(row: schemas.Node) -> str:
    """As its agent told."""
    found = (row["hardware"] or {}).get("gpus") or []
    names = [str(gpu.get("name", "GPU")) for gpu in found if isinstance(gpu, dict)]
    counts = {name: names.count(name) for name in names}
    return ", ".join(f"{count}x {name}" for name, count in counts.items()) or NOTHING


def _show(site: Session, arguments: argparse.Namespace) -> int:
    _print(site, node_named(site.client, arguments.node, arguments.cluster))
    return exit_codes.OK


def _add(site: Session, arguments: argparse.Namespace) -> int:
    cluster = cluster_named(site.client, arguments.cluster)
    body: schemas.NodeRequest = {"cluster": cluster["id"], "name": arguments.name}
    if arguments.region is not None:
        body["region"] = arguments.region
    if arguments.profile is not None:
        body["profile_name"] = arguments.profile
    if arguments.price is not None:
        body["price_per_hour"] = arguments.price
    _print(site, site.client.nodes.create(body))
    return exit_codes.OK


def _edit(site: Session, arguments: argparse.Namespace) -> int:
    row = node_named(site.client, arguments.node, arguments.cluster)
    body: schemas.PatchedNodeRequest = {}
    if arguments.name is not None:
        body["name"] = arguments.name
    if arguments.region is not None:
        body["region"] = arguments.region
    if arguments.profile is not None:
        body["profile_name"] = arguments.profile
    if arguments.price is not None:
        body["price_per_hour"] = arguments.price
    if not (body or arguments.tag or arguments.no_tag):
        raise BadUsage("say what to change: --name, --region, --profile, --price, --tag, --no-tag")
    if body:
        tagged = site.client.nodes.get_tagged(row["id"])
        row = site.client.nodes.update(row["id"], body, if_match=tagged.etag)
    if arguments.tag or arguments.no_tag:
        change: schemas.BulkRequest = {"nodes": [row["id"]]}
        if arguments.tag:
            change["add_tags"] = arguments.tag
        if arguments.no_tag:
            change["remove_tags"] = arguments.no_tag
        site.client.nodes.bulk(change)
        row = site.client.nodes.get(row["id"])
    _print(site, row)
    return exit_codes.OK


def _remove(site: Session, arguments: argparse.Namespace) -> int:
    rows = [node_named(site.client, word, arguments.cluster) for word in arguments.nodes]
    for row in rows:
        site.client.nodes.delete(row["id"])
    names = [row["name"] for row in rows]
    site.show({"removed": names}, f"removed {', '.join(names)}")
    return exit_codes.OK


def _token(site: Session, arguments: argparse.Namespace) -> int:
    cluster = cluster_named(site.client, arguments.cluster)
    token = site.client.join_tokens.create(
        {"cluster": cluster["id"], "role": arguments.role}, idempotency_key=str(uuid.uuid4())
    )
    lines = [
        f"{arguments.role} of {cluster['name']}, once, until {moment(token['expires_at'])} UTC:",
        "",
        f"  {token['command']}",
    ]
    if arguments.role == "node":
        lines += [
            "",
            "or, called as the machine itself:",
            "",
            f"  helix-agent join {site.client.url} --token {token['secret']}",
        ]
    site.show(token, "\n".join(lines))
    return exit_codes.OK


def _print(site: Session, row: schemas.Node) -> None:
    told = [
        ("id", row["id"]), ("name", row["name"]), ("cluster", row["cluster"]),
        ("state", row["state"]), ("region", row.get("region")),
        ("profile", row.get("profile_name")), ("GPUs", gpus(row)),
        ("price per hour", number(row.get("price_per_hour"), digits=2)),
        ("tags", row["tags"]), ("reached at", row["data_endpoint"]),
        ("version", row["version"]), ("joined", moment(row["joined_at"])),
        ("last seen", moment(row["last_seen_at"])),
    ]  # fmt: skip
    site.show(row, pairs(told))
