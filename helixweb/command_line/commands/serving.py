"""`helixweb deploy`, `drain`, `pause`, `resume`, `rollback`, `undeploy`: what a cluster runs."""

from argparse import ArgumentTypeError
from collections.abc import Sequence
from typing import Annotated, Any

from helixweb.client import Malformed
from helixweb.command_line.command import Command, command, site_options
from helixweb.command_line.failures import CommandFailed, NoSuchName
from helixweb.command_line.numbers import Count
from helixweb.command_line.output import NOTHING, Cells, columns, duration, rows_table
from helixweb.command_line.resolve import deployment_of, node_named
from helixweb.command_line.session import Row, Session, once_each
from helixweb.command_line.waiting import follow, is_over, when_changed
from helixweb.deployment.options import ENGINES, DeployOptions
from planner.units import bytes_text


def _node_engine(text: str) -> tuple[str, str]:
    name, _, engine = text.rpartition("=")
    if not name or engine not in ENGINES:
        raise ArgumentTypeError(f"{text!r} is not NODE=ENGINE; engines are {', '.join(ENGINES)}")
    return name, engine


@command(
    site_options(
        DeployOptions,
        "max_context_tokens", "max_queued_requests", "kv_high_water", "tensor_parallel", "engine",
    ),
)  # fmt: skip
def deploy(
    site: Session,
    plan: Count,
    *,
    no_wait: bool = False,
    node_engine: Sequence[Annotated[tuple[str, str], _node_engine]] = (),
    **options: Any,
) -> None:
    """Make a plan what its cluster runs.

    --no-wait: do not wait until it serves
    --node-engine NODE=ENGINE: a node's own engine; may be given several times
    """
    if node_engine:
        options["engine_by_node"] = once_each(node_engine, "--node-engine")
    try:
        row = site.create(site.client.deployments, {"plan": plan, **options})
    except Malformed as error:
        if [one.field for one in error.errors] != ["plan"]:
            raise
        said = f"there is no plan {plan}; `helixweb plan list` has them"
        raise NoSuchName(said) from error
    _show_settled(site, row, no_wait=no_wait)


def _show_settled(site: Session, row: Row, *, no_wait: bool) -> None:
    """Wait until it serves. Raises CommandFailed if it fails."""
    tell, key = when_changed(site.around.tell), row["id"]

    def show(row: Row) -> None:
        if not (is_over(row) or site.as_json):
            tell(progress(row))

    if not no_wait:
        row = follow(site, row, lambda: site.client.deployments.get(key), ended=is_over, tell=show)
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


def fetched(assignment: Row) -> str:
    """1.2 GB of 3 GB (peer a 1 GB, hub 200 MB), 12.0 s left"""
    fetch = assignment["fetch"]
    if fetch is None:
        return NOTHING
    by_source = dict(sorted(fetch["fetched"].items(), key=lambda one: -one[1]))
    text = f"{bytes_text(sum(by_source.values()))} of {bytes_text(fetch['needed_bytes'])}"
    if by_source:
        each = (f"{source} {bytes_text(count)}" for source, count in by_source.items())
        text += f" ({', '.join(each)})"
    is_loading = assignment["phase"] == "loading" and fetch["eta_s"] is not None
    return f"{text}, {duration(fetch['eta_s'])} left" if is_loading else text


def _order(action: str) -> Command:
    """A command that posts `action` to a deployment and prints the answer."""

    @command()
    def act(site: Session, deployment: Count | None = None, *, cluster: str | None = None) -> None:
        row = deployment_of(site, deployment, cluster)
        _show(site, site.client.deployments.do(action, row["id"]))

    return act


pause, resume, undeploy = _order("pause"), _order("resume"), _order("stop")


@command()
def rollback(
    site: Session,
    deployment: Count | None = None,
    *,
    cluster: str | None = None,
    no_wait: bool = False,
) -> None:
    """Deploy again what served before.

    --no-wait: do not wait until it serves
    """
    row = deployment_of(site, deployment, cluster)
    row = site.client.deployments.do("roll-back", row["id"])
    _show_settled(site, row, no_wait=no_wait)


@command()
def drain(
    site: Session, node: str | None = None, *, cluster: str | None = None, end: bool = False
) -> None:
    """Have a node take no requests.

    --end: take the node in again
    """
    drains = site.client.drains
    if node is None:
        rows = list(drains.all())
        cells = columns("node_name state requests needed")
        site.show(rows, rows_table(cells, rows) if rows else "no node is drained")
        return
    row = node_named(site, node, cluster)
    if not end:
        made = drains.create({"node": row["id"]})
        site.show(made, f"{row['name']} takes no new requests; `helixweb drain` shows how far")
        return
    drained = next(iter(drains.all(node=row["id"])), None)
    if drained is None:
        raise NoSuchName(f"node {row['name']} is not drained; `helixweb drain` lists who is")
    drains.delete(drained["id"])
    site.show({"ended": row["name"]}, f"{row['name']} takes requests again")


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
    shown = {"deployment": "id", "model": "model_name", "says": "message"}
    shown |= {name: name for name in ("plan", "status", "generation")}
    site.show_row(row, shown, held)
