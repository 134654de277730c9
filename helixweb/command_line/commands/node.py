"""`helixweb node`: the machines of a cluster."""

import argparse
import uuid

from helixweb.client import Row
from helixweb.command_line import exit_codes
from helixweb.command_line.completion_words import cluster_names, node_names
from helixweb.command_line.output import NOTHING, moment, number, pairs, table
from helixweb.command_line.registry import COMMANDS, Subparsers, completed_by
from helixweb.command_line.reporting import BadUsage
from helixweb.command_line.resolve import cluster_named, node_named, only_model
from helixweb.command_line.session import Session, connection_options, given, positive, run_action

run = run_action
POLL_S = 2.0
_MEASURED = ("done", "failed", "cancelled")


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
    measure = actions.add_parser(
        "measure",
        help="measure nodes for a model",
        description="Measure nodes for a model: those named, or all of a cluster that lack a "
        "fresh measurement.",
        parents=common,
    )
    completed_by(measure.add_argument("nodes", nargs="*", metavar="node"), node_names)
    measure.add_argument("--model", help="its name or id (default: the only one)")
    measure.add_argument("--again", action="store_true", help="also nodes with a fresh measurement")
    measure.add_argument("--no-wait", action="store_true", help="print the orders and return")
    measure.set_defaults(act=_measure)
    token = actions.add_parser("token", help="a join command", parents=common)
    for one, act in ((show, _show), (edit, _edit)):
        completed_by(one.add_argument("node", help="its name or id"), node_names)
        one.set_defaults(act=act)
    add.add_argument("name")
    add.set_defaults(act=_add)
    edit.add_argument("--name", help="another name; not for nodes that have joined")
    edit.add_argument(
        "--confirm-profile",
        action="store_true",
        help="assign the profile although it was measured on other hardware",
    )
    edit.add_argument("--tag", action="append", default=[], help="give it this tag")
    edit.add_argument("--no-tag", action="append", default=[], help="take this tag away")
    for one in (add, edit):
        one.add_argument("--region")
        one.add_argument("--profile", help="the compute profile it has")
        one.add_argument("--price", type=positive, help="per hour, where not its profile's")
    completed_by(remove.add_argument("nodes", nargs="+", metavar="node"), node_names)
    remove.set_defaults(act=_remove)
    token.add_argument("--role", choices=("node", "coordinator"), default="node")
    token.add_argument(
        "--machines", type=int, default=1, help="how many it admits (default %(default)s)"
    )
    token.set_defaults(act=_token)
    return parser


def _cluster_option() -> argparse.ArgumentParser:
    parent = argparse.ArgumentParser(add_help=False)
    completed_by(parent.add_argument("--cluster", help="its name or id"), cluster_names)
    return parent


def _list(site: Session, arguments: argparse.Namespace) -> int:
    names = {one["id"]: one["name"] for one in site.client.clusters.all()}
    cluster = arguments.cluster and cluster_named(site.client, arguments.cluster)["id"]
    rows = list(site.client.nodes.all(cluster=cluster))
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


def gpus(row: Row) -> str:
    """The GPUs that the agent reported: `2x A100`."""
    found = (row["hardware"] or {}).get("gpus") or []
    names = [str(gpu.get("name", "GPU")) for gpu in found if isinstance(gpu, dict)]
    counts = {name: names.count(name) for name in names}
    return ", ".join(f"{count}x {name}" for name, count in counts.items()) or NOTHING


def _show(site: Session, arguments: argparse.Namespace) -> int:
    _print(site, node_named(site.client, arguments.node, arguments.cluster))
    return exit_codes.OK


def _add(site: Session, arguments: argparse.Namespace) -> int:
    cluster = cluster_named(site.client, arguments.cluster)
    body = {"cluster": cluster["id"], **_changes(arguments)}
    _print(site, site.client.nodes.create(body))
    return exit_codes.OK


def _edit(site: Session, arguments: argparse.Namespace) -> int:
    row = node_named(site.client, arguments.node, arguments.cluster)
    body = _changes(arguments)
    if arguments.confirm_profile:
        body["confirm_profile"] = True
    if not (body or arguments.tag or arguments.no_tag):
        raise BadUsage("say what to change: --name, --region, --profile, --price, --tag, --no-tag")
    if body:
        tagged = site.client.nodes.get_tagged(row["id"])
        row = site.client.nodes.update(row["id"], body, if_match=tagged.etag)
    if arguments.tag or arguments.no_tag:
        tags = given(add_tags=arguments.tag or None, remove_tags=arguments.no_tag or None)
        site.client.nodes.do("bulk", body={"nodes": [row["id"]], **tags})
        row = site.client.nodes.get(row["id"])
    _print(site, row)
    return exit_codes.OK


def _changes(arguments: argparse.Namespace) -> Row:
    return given(
        name=arguments.name,
        region=arguments.region,
        profile_name=arguments.profile,
        price_per_hour=arguments.price,
    )


def _remove(site: Session, arguments: argparse.Namespace) -> int:
    rows = [node_named(site.client, word, arguments.cluster) for word in arguments.nodes]
    for row in rows:
        site.client.nodes.delete(row["id"])
    names = [row["name"] for row in rows]
    site.show({"removed": names}, f"removed {', '.join(names)}")
    return exit_codes.OK


def _measure(site: Session, arguments: argparse.Namespace) -> int:
    """Show the progress until all have ended. Ctrl-C does not stop the measurements."""
    model = only_model(site.client, arguments.model)
    if arguments.nodes:
        rows = [node_named(site.client, word, arguments.cluster) for word in arguments.nodes]
        orders = [
            site.client.profilings.create({"node": row["id"], "model": model["id"]}) for row in rows
        ]
    else:
        cluster = cluster_named(site.client, arguments.cluster)
        orders = site.client.clusters.do(
            "measure", cluster["id"], {"model": model["id"], "again": arguments.again}
        )
    names = {row["id"]: row["name"] for row in site.client.nodes.all()}
    told: dict[int, tuple[str, ...]] = {}
    while not arguments.no_wait:
        for order in orders:
            line = _progress(names[order["node"]], order)
            if told.get(order["id"]) != line and not site.as_json:
                told[order["id"]] = line
                site.around.warn("  ".join(line))
        if all(order["state"] in _MEASURED for order in orders):
            break
        site.around.sleep(POLL_S)
        # After a failed check the server gives another order.
        newest = [
            site.client.profilings.all(node=order["node"], ordering=["-id"], limit=1)
            for order in orders
        ]
        orders = [row for rows in newest for row in rows]
    lines = [_progress(names[order["node"]], order) for order in orders]
    site.show(orders, table(("NODE", "STATE", "DONE", "LEFT", "MESSAGE"), lines))
    has_failed = any(order["state"] == "failed" for order in orders)
    return exit_codes.FAILED if has_failed else exit_codes.OK


def _progress(name: str, order: Row) -> tuple[str, ...]:
    left_s = order["left_s"]
    left = NOTHING if left_s is None else f"{left_s:.0f} s"
    return name, order["state"], f"{order['done']:.0%}", left, order["message"]


def _token(site: Session, arguments: argparse.Namespace) -> int:
    cluster = cluster_named(site.client, arguments.cluster)
    token = site.client.join_tokens.create(
        {"cluster": cluster["id"], "role": arguments.role, "machines": arguments.machines},
        idempotency_key=str(uuid.uuid4()),
    )
    admits = "one machine" if arguments.machines == 1 else f"{arguments.machines} machines"
    until = f"{moment(token['expires_at'])} UTC"
    lines = [
        f"{arguments.role} of {cluster['name']}, for {admits}, until {until}:",
        "",
        f"  {token['command']}",
    ]
    if arguments.role == "node":
        lines += [
            "",
            "or, where the agent is installed already:",
            "",
            f"  helix-agent join {site.client.url} --token {token['secret']}",
            "",
            "Other machines of the cluster must be able to dial its data port and weights port,",
            "which are any free ones unless you add --data-port and --weights-port.",
        ]
    site.show(token, "\n".join(lines))
    return exit_codes.OK


def _print(site: Session, row: Row) -> None:
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
