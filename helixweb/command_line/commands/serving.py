"""`helixweb deploy`, `drain`, `pause`, `resume`, `rollback`, `undeploy`: what a cluster runs."""

from argparse import ArgumentTypeError, Namespace

from helixweb.client import Malformed, Row
from helixweb.command_line.command import (
    CLUSTER,
    Command,
    argument,
    command,
    options_given,
    site_options,
)
from helixweb.command_line.failures import CommandFailed, NoSuchName
from helixweb.command_line.fetches import fetched
from helixweb.command_line.numbers import whole_number
from helixweb.command_line.output import Cells, columns, rows_table
from helixweb.command_line.resolve import deployment_of, node_named
from helixweb.command_line.session import Session
from helixweb.deployment.options import ENGINES, DeployOptions
from planner.units import bytes_text

POLL_S = 0.5
_WHICH = argument("deployment", type=whole_number, nargs="?", help="else the one in service")
_NO_WAIT = argument("--no-wait", action="store_true", help="do not wait until it serves")


def _node_engine(text: str) -> tuple[str, str]:
    name, _, engine = text.rpartition("=")
    if not name or engine not in ENGINES:
        raise ArgumentTypeError(f"{text!r} is not NODE=ENGINE; engines are {', '.join(ENGINES)}")
    return name, engine


@command(
    argument("plan", type=whole_number),
    _NO_WAIT,
    site_options(
        DeployOptions,
        "max_context_tokens", "max_queued_requests", "kv_high_water", "tensor_parallel", "engine",
    ),
    argument(
        "--node-engine",
        dest="engine_by_node",
        type=_node_engine,
        action="append",
        metavar="NODE=ENGINE",
        help="a node's own engine; may be given several times",
    ),
)  # fmt: skip
def deploy(site: Session, arguments: Namespace) -> None:
    body = {"plan": arguments.plan, **options_given(arguments, DeployOptions)}
    if "engine_by_node" in body:
        body["engine_by_node"] = dict(body["engine_by_node"])
    try:
        row = site.create(site.client.deployments, body)
    except Malformed as error:
        if [one.field for one in error.errors] != ["plan"]:
            raise
        said = f"there is no plan {arguments.plan}; `helixweb plan list` has them"
        raise NoSuchName(said) from error
    _show_settled(site, row, arguments)


def _show_settled(site: Session, row: Row, arguments: Namespace) -> None:
    """Wait until it serves. Raises CommandFailed if it fails."""
    told = ""
    while row["status"] == "deploying" and not arguments.no_wait:
        line = progress(row)
        if line != told and not site.as_json:
            site.around.err.write(f"{line}\n")
            site.around.err.flush()
        told = line
        site.around.sleep(POLL_S)
        row = site.client.deployments.get(row["id"])
    _show(site, row)
    if row["status"] == "failed":
        raise CommandFailed(f"deployment {row['id']} failed: {row['message'] or 'see its nodes'}")


def progress(row: Row) -> str:
    """The progress of the deployment's nodes in one line."""
    phases = [one["phase"] for one in row["assignments"]]
    counts = ", ".join(f"{phases.count(word)} {word}" for word in dict.fromkeys(phases))
    fetches = [one["fetch"] for one in row["assignments"] if one["fetch"] is not None]
    needed = sum(fetch["needed_bytes"] for fetch in fetches)
    done = sum(sum(fetch["fetched"].values()) for fetch in fetches)
    share = f"; fetched {done / needed:.0%} of {bytes_text(needed)}" if needed else ""
    return f"deployment {row['id']} {row['status']}: {counts or 'no nodes'}{share}"


def _order(action: str) -> Command:
    """A command that posts `action` to a deployment and prints the answer."""

    @command(_WHICH, CLUSTER)
    def act(site: Session, arguments: Namespace) -> None:
        row = deployment_of(site.client, arguments.deployment, arguments.cluster)
        _show(site, site.client.deployments.do(action, row["id"]))

    return act


pause, resume, undeploy = _order("pause"), _order("resume"), _order("stop")


@command(_WHICH, CLUSTER, _NO_WAIT)
def rollback(site: Session, arguments: Namespace) -> None:
    row = deployment_of(site.client, arguments.deployment, arguments.cluster)
    _show_settled(site, site.client.deployments.do("roll-back", row["id"]), arguments)


@command(
    argument("node", nargs="?", help="its name or id", complete="nodes"),
    CLUSTER,
    argument("--end", action="store_true", help="take the node in again"),
)
def drain(site: Session, arguments: Namespace) -> None:
    if arguments.node is None:
        rows = list(site.client.drains.all())
        cells = columns("node_name state requests needed")
        site.show(rows, rows_table(cells, rows) if rows else "no node is drained")
        return
    node = node_named(site.client, arguments.node, arguments.cluster)
    if not arguments.end:
        made = site.client.drains.create({"node": node["id"]})
        site.show(made, f"{node['name']} takes no new requests; `helixweb drain` tells how far")
        return
    drained = next(iter(site.client.drains.all(node=node["id"])), None)
    if drained is None:
        raise NoSuchName(f"node {node['name']} is not drained; `helixweb drain` lists who is")
    site.client.drains.delete(drained["id"])
    site.show({"ended": node["name"]}, f"{node['name']} takes requests again")


def _show(site: Session, row: Row) -> None:
    cells: Cells = {
        "NODE": "node_name",
        "LAYERS": lambda one: f"[{one['first']}, {one['end']})",
        "PHASE": "phase",
        "LOADED": "loaded_ratio",
        "FETCHED": fetched,
        "SAYS": "message",
    }
    held = rows_table(cells, row["assignments"]) if row["assignments"] else ""
    told = {"deployment": "id", "model": "model_name", "says": "message"}
    told |= {name: name for name in ("plan", "status", "generation")}
    site.show_row(row, told, held)
