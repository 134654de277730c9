"""Plan runs as commands show them: progress while they search, then the plan."""

from helixweb.command_line import exit_codes
from helixweb.command_line.output import Cells, json_line, number, percent, table
from helixweb.command_line.session import Row, Session
from helixweb.command_line.waiting import failure, finished, is_over

NOUN = "plan run"


def searched(site: Session, run: Row, *, no_wait: bool) -> int:
    """Show the run, or wait for its end and show its plan. Raises CommandFailed without a plan."""
    runs, tell = site.client.plan_runs, _Progress(site)
    ended = finished(site, NOUN, runs, run, no_wait=no_wait, can_cancel=True, tell=tell)
    if ended is None:
        return exit_codes.OK
    show_plan_of(site, ended)
    return exit_codes.OK if ended["status"] != "failed" else exit_codes.FAILED


def show_plan_of(site: Session, run: Row) -> None:
    """Show the plan of a run. Raises CommandFailed if it has none."""
    if run["plan"] is None:
        raise failure(NOUN, run, "no plan")
    show_plan(site, run["plan"])


def show_plan(site: Session, key: int) -> None:
    row = site.client.plans.get(key)
    placement = row["document"].get("placement") or {}
    rows = [(node, f"[{first}, {end})") for node, (first, end) in sorted(placement.items())]
    cells: Cells = {
        "plan": "id",
        "flow": lambda plan: f"{number(plan['flow_tokens_per_s'])} tokens/s",
        "bound": lambda plan: f"{number(plan['upper_bound_tokens_per_s'])} tokens/s",
        "gap": "gap",
        "hops": "hops",
    }
    site.show_row(row, cells, table(("NODE", "LAYERS"), rows) if rows else "")


class _Progress:
    """Shows a run: on a terminal one line, else each incumbent on stderr."""

    def __init__(self, site: Session) -> None:
        self._site, self._seen = site, 0

    def __call__(self, run: Row) -> None:
        around = self._site.around
        if around.is_terminal and not self._site.as_json:
            line = f"run {run['id']} {run['status']}  best {_figures(run, '  ')}"
            around.out.write(f"\r{line:<79}" + ("\n" if is_over(run) else ""))
            around.out.flush()
            return
        for one in self._site.client.plan_runs.rows("incumbents", run["id"], offset=self._seen):
            self._seen += 1
            text = f"{number(one['elapsed_s'])} s  {one['placer']}: {_figures(one, ', ')}"
            around.tell(json_line({"incumbent": one}) if self._site.as_json else text)


def _figures(row: Row, between: str) -> str:
    flow, bound = number(row["flow_tokens_per_s"]), number(row["upper_bound_tokens_per_s"])
    return between.join((f"{flow} tokens/s", f"bound {bound}", f"gap {percent(row['gap'])}"))
