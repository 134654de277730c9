"""`helixweb node`: the machines of a cluster."""

from argparse import Namespace

from helixweb.client import Row
from helixweb.command_line import exit_codes
from helixweb.command_line.command import CLUSTER, Verbs, argument
from helixweb.command_line.failures import BadUsage
from helixweb.command_line.numbers import positive
from helixweb.command_line.output import NOTHING, Cells, columns, moment, rows_table
from helixweb.command_line.resolve import cluster_named, node_named, only_model
from helixweb.command_line.resource import Resource, add_verbs, column
from helixweb.command_line.session import Session, given

POLL_S = 2.0
_MEASURED = ("done", "failed", "cancelled")


def gpus(row: Row) -> str:
    """The GPUs that the agent reported: `2x A100`."""
    found = (row["hardware"] or {}).get("gpus") or []
    names = [str(gpu.get("name", "GPU")) for gpu in found if isinstance(gpu, dict)]
    counts = {name: names.count(name) for name in names}
    return ", ".join(f"{count}x {name}" for name, count in counts.items()) or NOTHING


node = Verbs()
NODES = Resource(
    noun="node",
    collection="nodes",
    find=lambda site, arguments, word: node_named(site.client, word, arguments.cluster),
    cells={
        **columns("name cluster_name state region profile_name"),
        "GPUS": gpus,
        **columns("last_seen_at tags"),
    },
    fields=dict(
        (
            column("region"),
            column("profile_name", "--profile", help="the compute profile it has"),
            column(
                "price_per_hour", "--price", type=positive, help="per hour, if not its profile's"
            ),
        )
    ),
    common=(CLUSTER,),
    extra={"GPUs": gpus},
)
add_verbs(node, NODES, "list", "add", "edit")


@node(
    "list",
    "all nodes, or a cluster's",
    CLUSTER,
    argument("--state", choices=("declared", "online", "lost")),
)
def _list(site: Session, arguments: Namespace) -> None:
    names = {one["id"]: one["name"] for one in site.client.clusters.all()}
    within = arguments.cluster and cluster_named(site.client, arguments.cluster)["id"]
    rows = list(site.client.nodes.all(cluster=within))
    if arguments.state is not None:
        rows = [row for row in rows if row["state"] == arguments.state]
    cells: Cells = {**NODES.cells, "CLUSTER": lambda row: names.get(row["cluster"])}
    site.show_rows(rows, cells)


@node("add", "declare a node", CLUSTER, argument("name"), *NODES.fields.values())
def _add(site: Session, arguments: Namespace) -> None:
    cluster = cluster_named(site.client, arguments.cluster)
    body = {"cluster": cluster["id"], **NODES.changes(arguments)}
    NODES.show(site, site.client.nodes.create(body))


@node(
    "edit",
    "change a node",
    CLUSTER,
    NODES.named(),
    argument("--name", help="another name; not for nodes that have joined"),
    argument(
        "--confirm-profile",
        action="store_true",
        help="assign the profile although it was measured on other hardware",
    ),
    argument("--tag", action="append", help="give it this tag"),
    argument("--no-tag", action="append", help="take this tag away"),
    *NODES.fields.values(),
)
def _edit(site: Session, arguments: Namespace) -> None:
    row = NODES.find(site, arguments, arguments.node)
    confirmed = {"confirm_profile": True} if arguments.confirm_profile else {}
    body = NODES.changes(arguments) | confirmed
    tags = given(add_tags=arguments.tag, remove_tags=arguments.no_tag)
    if not (body or tags):
        raise BadUsage("say what to change: --name, --region, --profile, --price, --tag, --no-tag")
    if body:
        row = NODES.update(site, row, body)
    if tags:
        site.client.nodes.do("bulk", body={"nodes": [row["id"]], **tags})
        row = site.client.nodes.get(row["id"])
    NODES.show(site, row)


@node(
    "measure",
    "measure nodes for a model",
    CLUSTER,
    NODES.named("nodes", nargs="*", metavar="node"),
    argument("--model", help="its name or id (default: the only one)"),
    argument("--again", action="store_true", help="also nodes with a fresh measurement"),
    argument("--no-wait", action="store_true", help="print the orders and return"),
    description="Measure nodes for a model: those named, or all of a cluster that lack a "
    "fresh measurement.",
)
def _measure(site: Session, arguments: Namespace) -> int:
    """Show the progress until all have ended. Ctrl-C does not stop the measurements."""
    model = only_model(site.client, arguments.model)
    if arguments.nodes:
        rows = [NODES.find(site, arguments, word) for word in arguments.nodes]
        body = [{"node": row["id"], "model": model["id"]} for row in rows]
        orders = [site.client.profilings.create(one) for one in body]
    else:
        cluster = cluster_named(site.client, arguments.cluster)
        asked = {"model": model["id"], "again": arguments.again}
        orders = site.client.clusters.do("measure", cluster["id"], asked)
    names = {row["id"]: row["name"] for row in site.client.nodes.all()}
    cells: Cells = {
        "NODE": lambda order: names[order["node"]],
        "STATE": "state",
        "DONE": lambda order: f"{order['done']:.0%}",
        "LEFT": lambda order: NOTHING if order["left_s"] is None else f"{order['left_s']:.0f} s",
        "MESSAGE": "message",
    }
    told: dict[int, str] = {}
    while not arguments.no_wait:
        for order in orders:
            line = rows_table(cells, [order]).split("\n")[1]
            if told.get(order["id"]) != line and not site.as_json:
                told[order["id"]] = line
                site.around.warn(line)
        if all(order["state"] in _MEASURED for order in orders):
            break
        site.around.sleep(POLL_S)
        # After a failed check the server gives another order.
        newest = [
            site.client.profilings.all(node=order["node"], ordering=["-id"], limit=1)
            for order in orders
        ]
        orders = [row for rows in newest for row in rows]
    site.show_rows(orders, cells)
    has_failed = any(order["state"] == "failed" for order in orders)
    return exit_codes.FAILED if has_failed else exit_codes.OK


@node(
    "token",
    "a join command",
    CLUSTER,
    argument("--role", choices=("node", "coordinator"), default="node"),
    argument("--machines", type=int, default=1, help="how many it admits (default %(default)s)"),
)
def _token(site: Session, arguments: Namespace) -> None:
    cluster = cluster_named(site.client, arguments.cluster)
    asked = {"role": arguments.role, "machines": arguments.machines}
    token = site.create(site.client.join_tokens, {"cluster": cluster["id"], **asked})
    admits = "one machine" if arguments.machines == 1 else f"{arguments.machines} machines"
    until = f"{moment(token['expires_at'])} UTC"
    text = (
        f"{arguments.role} of {cluster['name']}, for {admits}, until {until}:\n\n"
        f"  {token['command']}"
    )
    if arguments.role == "node":
        text += (
            "\n\nor, where the agent is installed already:\n\n"
            f"  helix-agent join {site.client.url} --token {token['secret']}\n\n"
            "Other machines of the cluster must be able to dial its data port and weights port,\n"
            "which are any free ones unless you add --data-port and --weights-port."
        )
    site.show(token, text)
