"""`helixweb node`: the machines of a cluster."""

from collections.abc import Sequence
from typing import Any, Literal

from helixweb.command_line import exit_codes
from helixweb.command_line.command import Verbs
from helixweb.command_line.failures import BadUsage
from helixweb.command_line.numbers import positive
from helixweb.command_line.output import NOTHING, Cells, columns, moment, rows_table
from helixweb.command_line.resolve import cluster_named, names_of, node_named, only_model, within
from helixweb.command_line.resource import Resource, add_verbs, column
from helixweb.command_line.session import Row, Session, given
from helixweb.command_line.waiting import follow, when_changed

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
    find=node_named,
    cells={
        **columns("name cluster_name state region profile_name"),
        "GPUS": gpus,
        **columns("last_seen_at tags"),
    },
    fields=dict(
        (
            column("region"),
            column("profile_name", flag="--profile", help="the compute profile it has"),
            column("price_per_hour", positive, "--price", "per hour, if not its profile's"),
        )
    ),
    of_cluster=True,
    extra={"GPUs": gpus},
)
add_verbs(node, NODES, "list", "edit")


@node()
def _list(
    site: Session,
    *,
    cluster: str | None = None,
    state: Literal["declared", "online", "lost"] | None = None,
) -> None:
    """All nodes, or a cluster's."""
    names = names_of(site.client.clusters)
    rows = [
        row
        for row in site.client.nodes.all(cluster=within(site, cluster))
        if state in (None, row["state"])
    ]
    site.show_rows(rows, {**NODES.cells, "CLUSTER": lambda row: names.get(row["cluster"])})


@node(*NODES.fields.values())
def _edit(
    site: Session,
    node: str,
    *,
    cluster: str | None = None,
    name: str | None = None,
    confirm_profile: bool = False,
    tag: Sequence[str] | None = None,
    no_tag: Sequence[str] | None = None,
    **values: Any,
) -> None:
    """Change a node.

    --name: another name; not for nodes that have joined
    --confirm-profile: assign the profile although it was measured on other hardware
    --tag: give it this tag
    --no-tag: take this tag away
    """
    row = node_named(site, node, cluster)
    body = values | given(name=name, confirm_profile=confirm_profile or None)
    tags = given(add_tags=tag, remove_tags=no_tag)
    if not (body or tags):
        raise BadUsage("say what to change: --name, --region, --profile, --price, --tag, --no-tag")
    if body:
        row = NODES.update(site, row, body)
    if tags:
        site.client.nodes.do("bulk", body={"nodes": [row["id"]], **tags})
        row = site.client.nodes.get(row["id"])
    NODES.show(site, row)


@node()
def _measure(
    site: Session,
    nodes: Sequence[str] = (),
    *,
    cluster: str | None = None,
    model: str | None = None,
    again: bool = False,
    no_wait: bool = False,
) -> int:
    """Measure nodes for a model.

    Measure nodes for a model: those named, or all of a cluster that lack a fresh measurement.
    Ctrl-C does not stop the measurements.

    --model: its name or id (default: the only one)
    --again: also nodes with a fresh measurement
    --no-wait: print the orders and return
    """
    model_id = only_model(site, model)["id"]
    if nodes:
        ids = [node_named(site, word, cluster)["id"] for word in nodes]
        orders = [site.client.profilings.create({"node": one, "model": model_id}) for one in ids]
    else:
        body = {"model": model_id, "again": again}
        orders = site.client.clusters.do("measure", cluster_named(site, cluster)["id"], body)
    names = names_of(site.client.nodes)
    cells: Cells = {
        "NODE": lambda order: names[order["node"]],
        "STATE": "state",
        "DONE": lambda order: f"{order['done']:.0%}",
        "LEFT": lambda order: NOTHING if order["left_s"] is None else f"{order['left_s']:.0f} s",
        "MESSAGE": "message",
    }
    tell = {order["node"]: when_changed(site.around.warn) for order in orders}

    def show(orders: list[Row]) -> None:
        for order in [] if site.as_json else orders:
            tell[order["node"]](rows_table(cells, [order]).split("\n")[1])

    def newest() -> list[Row]:
        """The newest order: after a failed check the server gives a new one."""
        asked = [
            site.client.profilings.all(node=order["node"], ordering=["-id"], limit=1)
            for order in orders
        ]
        return [row for rows in asked for row in rows]

    def ended(orders: list[Row]) -> bool:
        return all(order["state"] in _MEASURED for order in orders)

    if not no_wait:
        orders = follow(site, orders, newest, ended=ended, tell=show)
    site.show_rows(orders, cells)
    has_failed = any(order["state"] == "failed" for order in orders)
    return exit_codes.FAILED if has_failed else exit_codes.OK


@node()
def _token(
    site: Session,
    *,
    cluster: str | None = None,
    role: Literal["node", "coordinator"] = "node",
    machines: int = 1,
) -> None:
    """A join command.

    --machines: how many it admits (default %(default)s)
    """
    row = cluster_named(site, cluster)
    asked = {"cluster": row["id"], "role": role, "machines": machines}
    token = site.create(site.client.join_tokens, asked)
    admits = "one machine" if machines == 1 else f"{machines} machines"
    until = f"{moment(token['expires_at'])} UTC"
    text = f"{role} of {row['name']}, for {admits}, until {until}:\n\n  {token['command']}"
    if role == "node":
        text += (
            "\n\nor, where the agent is installed already:\n\n"
            f"  helix-agent join {site.client.url} --token {token['secret']}\n\n"
            "Other machines of the cluster must be able to dial its data port and weights port,\n"
            "which are any free ones unless you add --data-port and --weights-port."
        )
    site.show(token, text)
