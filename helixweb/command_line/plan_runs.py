"""Plan runs as commands show them: progress while they search, then the plan."""

import argparse

from helixweb.client import Row
from helixweb.command_line import exit_codes
from helixweb.command_line.output import json_line, number, pairs, percent, table
from helixweb.command_line.reporting import CommandFailed
from helixweb.command_line.session import Session

POLL_S = 0.5
FINISHED = ("succeeded", "failed", "cancelled")


def waiting_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-wait", action="store_true", help="print the run and return")


def searched(site: Session, run: Row, *, no_wait: bool) -> int:
    """Show the run, or wait for its end and show its plan. Raises CommandFailed without a plan."""
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


def follow_run(site: Session, run: Row) -> Row:
    """Show the run until it has ended, and return it. Ctrl-C ends the search and keeps its plan."""
    shown, seen = "", 0
    ending = False
    while True:
        try:
            seen = _write_incumbents(site, run["id"], seen)
            if site.around.is_terminal and not site.as_json:
                shown = _redraw(site, progress_line(run), shown)
            if run["status"] in FINISHED:
                if shown:
                    site.around.say()
                return run
            site.around.sleep(POLL_S)
            run = site.client.plan_runs.get(run["id"])
        except KeyboardInterrupt:
            if ending:
                raise
            ending = True
            site.around.warn("ending the search; the best plan so far is kept")
            run = site.client.plan_runs.do("cancel", run["id"])


def progress_line(run: Row) -> str:
    best = number(run["flow_tokens_per_s"])
    bound = number(run["upper_bound_tokens_per_s"])
    gap = percent(run["gap"])
    return f"run {run['id']} {run['status']}  best {best}  bound {bound} tokens/s  gap {gap}"


def _write_incumbents(site: Session, run: int, seen: int) -> int:
    """Write new incumbents to stderr unless a terminal shows progress; returns their number."""
    if site.around.is_terminal and not site.as_json:
        return seen
    for one in site.client.plan_runs.rows("incumbents", run, offset=seen):
        seen += 1
        if site.as_json:
            site.around.err.write(f"{json_line({'incumbent': one})}\n")
        else:
            flow, gap = number(one["flow_tokens_per_s"]), percent(one["gap"])
            bound = number(one["upper_bound_tokens_per_s"])
            elapsed = number(one["elapsed_s"])
            site.around.err.write(
                f"{elapsed} s  {one['placer']}: {flow} tokens/s, bound {bound}, gap {gap}\n"
            )
    site.around.err.flush()
    return seen


def _redraw(site: Session, line: str, shown: str) -> str:
    """Replace the line `shown`."""
    site.around.out.write("\r" + line.ljust(len(shown)))
    site.around.out.flush()
    return line
