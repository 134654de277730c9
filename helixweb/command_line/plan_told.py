"""What commands that search have in common: wait for the run, then tell of its plan."""

import argparse

from helixweb.client import Row
from helixweb.command_line import exit_codes
from helixweb.command_line.output import number, pairs, percent, table
from helixweb.command_line.plan_progress import follow_run
from helixweb.command_line.reporting import CommandFailed
from helixweb.command_line.session import Session


def waiting_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-wait", action="store_true", help="print the run and return")


def searched(site: Session, run: Row, *, no_wait: bool) -> int:
    """Shows the run, or, once it has ended, its plan. Raises CommandFailed where there is none."""
    if no_wait:
        site.show(run, f"plan run {run['id']} is {run['status']}")
        return exit_codes.OK
    run = follow_run(site, run)
    plan = run["plan"]
    if plan is None:
        raise CommandFailed(f"plan run {run['id']} {run['status']}: {run['error'] or 'no plan'}")
    show_plan(site, site.client.plans.get(plan))
    return exit_codes.OK if run["status"] != "failed" else exit_codes.FAILED


def show_plan(site: Session, plan: Row) -> None:
    placement = plan["document"].get("placement") or {}
    told = pairs([
        ("plan", plan["id"]),
        ("flow", f"{number(plan['flow_tokens_per_s'])} tokens/s"),
        ("bound", f"{number(plan['upper_bound_tokens_per_s'])} tokens/s"),
        ("gap", percent(plan["gap"])),
        ("hops", number(plan["hops"], digits=2)),
    ])  # fmt: skip
    rows = [(node, f"[{first}, {end})") for node, (first, end) in sorted(placement.items())]
    site.show(plan, told + ("\n\n" + table(("NODE", "LAYERS"), rows) if rows else ""))
