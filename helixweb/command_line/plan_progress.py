"""Shows a search while it runs: the best placement so far and the proven bound."""

from helixweb.client import Row
from helixweb.command_line.output import json_line, number, percent
from helixweb.command_line.session import Session

POLL_S = 0.5
FINISHED = ("succeeded", "failed", "cancelled")


def follow_run(site: Session, run: Row) -> Row:
    """Until it has ended; returns it then. Ctrl-C ends the search, and the best plan is kept."""
    shown, seen = "", 0
    ending = False
    while True:
        try:
            seen = _tell_incumbents(site, run["id"], seen)
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


def _tell_incumbents(site: Session, run: int, seen: int) -> int:
    """One line for each that is new, on stderr where nobody watches; returns how many there are."""
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
    """Over what was shown."""
    site.around.out.write("\r" + line.ljust(len(shown)))
    site.around.out.flush()
    return line
