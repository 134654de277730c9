"""`helixweb deploy`, `drain`, `pause`, `resume`, `rollback`, `undeploy`: what a cluster runs."""

import argparse
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from helixweb.client import Malformed, Row
from helixweb.command_line import exit_codes
from helixweb.command_line.completion_words import cluster_names, node_names
from helixweb.command_line.fetches import fetched
from helixweb.command_line.output import pairs, percent, table
from helixweb.command_line.registry import COMMANDS, Subparsers, completed_by
from helixweb.command_line.reporting import CommandFailed, NoSuchName
from helixweb.command_line.resolve import deployment_of, node_named
from helixweb.command_line.session import (
    Session,
    connection_options,
    run_action,
    whole_number,
)
from helixweb.command_line.site_options import add_site_options, options_given
from helixweb.deployment.options import ENGINES, DeployOptions
from planner.units import bytes_text

POLL_S = 0.5
Options = Callable[[argparse.ArgumentParser], None]
Act = Callable[[Session, argparse.Namespace], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Command:
    """One of these commands; implements `registry.Command`."""

    name: str
    options: Options
    act: Act

    def add_parser(self, subparsers: Subparsers) -> argparse.ArgumentParser:
        parser = subparsers.add_parser(
            self.name, help=COMMANDS[self.name][1], parents=[connection_options()]
        )
        self.options(parser)
        parser.set_defaults(act=self.act)
        return parser

    def run(self, arguments: argparse.Namespace) -> int:
        return run_action(arguments)


def _deploy_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", type=whole_number)
    parser.add_argument("--no-wait", action="store_true", help="do not wait until it serves")
    names = ("max_context_tokens", "max_queued_requests", "kv_high_water", "tensor_parallel")
    add_site_options(parser, DeployOptions, *names, "engine")
    parser.add_argument(
        "--node-engine",
        dest="engine_by_node",
        type=_node_engine,
        action="append",
        metavar="NODE=ENGINE",
        help="a node's own engine; may be given several times",
    )


def _node_engine(text: str) -> tuple[str, str]:
    name, _, engine = text.rpartition("=")
    if not name or engine not in ENGINES:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not NODE=ENGINE; engines are {', '.join(ENGINES)}"
        )
    return name, engine


def _which(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("deployment", type=whole_number, nargs="?", help="else the one in service")
    completed_by(parser.add_argument("--cluster", help="its name or id"), cluster_names)


def _drain_options(parser: argparse.ArgumentParser) -> None:
    completed_by(parser.add_argument("node", nargs="?", help="its name or id"), node_names)
    completed_by(parser.add_argument("--cluster", help="its name or id"), cluster_names)
    parser.add_argument("--end", action="store_true", help="take the node in again")


def _deploy(site: Session, arguments: argparse.Namespace) -> int:
    body = {"plan": arguments.plan, **options_given(arguments, DeployOptions)}
    if "engine_by_node" in body:
        body["engine_by_node"] = dict(body["engine_by_node"])
    try:
        row = site.client.deployments.create(body, idempotency_key=str(uuid.uuid4()))
    except Malformed as error:
        if [one.field for one in error.errors] != ["plan"]:
            raise
        raise NoSuchName(f"there is no plan {arguments.plan}; `helixweb plan list` has them") from (
            error
        )
    return _settled(site, row, no_wait=arguments.no_wait)


def _settled(site: Session, row: Row, *, no_wait: bool) -> int:
    told = ""
    while row["status"] == "deploying" and not no_wait:
        line = progress(row)
        if line != told and not site.as_json:
            site.around.err.write(f"{line}\n")
            site.around.err.flush()
        told = line
        site.around.sleep(POLL_S)
        row = site.client.deployments.get(row["id"])
    _print(site, row)
    if row["status"] == "failed":
        raise CommandFailed(f"deployment {row['id']} failed: {row['message'] or 'see its nodes'}")
    return exit_codes.OK


def progress(row: Row) -> str:
    """The progress of the deployment's nodes in one line."""
    phases = [one["phase"] for one in row["assignments"]]
    counts = ", ".join(f"{phases.count(word)} {word}" for word in dict.fromkeys(phases))
    fetches = [one["fetch"] for one in row["assignments"] if one["fetch"] is not None]
    needed = sum(fetch["needed_bytes"] for fetch in fetches)
    done = sum(sum(fetch["fetched"].values()) for fetch in fetches)
    share = f"; fetched {done / needed:.0%} of {bytes_text(needed)}" if needed else ""
    return f"deployment {row['id']} {row['status']}: {counts or 'no nodes'}{share}"


def _order(action: str) -> Act:
    """The function of a command that posts `action` to a deployment and prints the answer."""

    def act(site: Session, arguments: argparse.Namespace) -> int:
        row = deployment_of(site.client, arguments.deployment, arguments.cluster)
        _print(site, site.client.deployments.do(action, row["id"]))
        return exit_codes.OK

    return act


def _roll_back(site: Session, arguments: argparse.Namespace) -> int:
    row = deployment_of(site.client, arguments.deployment, arguments.cluster)
    made = site.client.deployments.do("roll-back", row["id"])
    return _settled(site, made, no_wait=arguments.no_wait)


def _roll_back_options(parser: argparse.ArgumentParser) -> None:
    _which(parser)
    parser.add_argument("--no-wait", action="store_true", help="do not wait until it serves")


def _drain(site: Session, arguments: argparse.Namespace) -> int:
    if arguments.node is None:
        rows = list(site.client.drains.all())
        columns = ("NODE", "STATE", "REQUESTS", "STILL NEEDED")
        told = [(one["node_name"], one["state"], one["requests"], one["needed"]) for one in rows]
        site.show(rows, table(columns, told) if rows else "no node is drained")
        return exit_codes.OK
    node = node_named(site.client, arguments.node, arguments.cluster)
    if not arguments.end:
        made = site.client.drains.create({"node": node["id"]})
        site.show(made, f"{node['name']} takes no new requests; `helixweb drain` tells how far")
        return exit_codes.OK
    drain = next(iter(site.client.drains.all(node=node["id"])), None)
    if drain is None:
        raise NoSuchName(f"node {node['name']} is not drained; `helixweb drain` lists who is")
    site.client.drains.delete(drain["id"])
    site.show({"ended": node["name"]}, f"{node['name']} takes requests again")
    return exit_codes.OK


def _print(site: Session, row: Row) -> None:
    told = [
        ("deployment", row["id"]), ("plan", row["plan"]), ("model", row["model_name"]),
        ("status", row["status"]), ("says", row["message"]), ("generation", row["generation"]),
    ]  # fmt: skip
    rows = [
        (
            one["node_name"], f"[{one['first']}, {one['end']})", one["phase"],
            percent(one["loaded_ratio"]), fetched(one), one["message"],
        )
        for one in row["assignments"]
    ]  # fmt: skip
    columns = ("NODE", "LAYERS", "PHASE", "LOADED", "FETCHED", "SAYS")
    site.show(row, pairs(told) + (f"\n\n{table(columns, rows)}" if rows else ""))


DEPLOY = _Command(name="deploy", options=_deploy_options, act=_deploy)
DRAIN = _Command(name="drain", options=_drain_options, act=_drain)
PAUSE = _Command(name="pause", options=_which, act=_order("pause"))
RESUME = _Command(name="resume", options=_which, act=_order("resume"))
ROLLBACK = _Command(name="rollback", options=_roll_back_options, act=_roll_back)
UNDEPLOY = _Command(name="undeploy", options=_which, act=_order("stop"))
