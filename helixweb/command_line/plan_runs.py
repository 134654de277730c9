"""Plan runs as commands show them: progress while they search, then the plan."""

from argparse import Namespace
from collections.abc import Callable

from helixweb.client import Row
from helixweb.command_line import exit_codes
from helixweb.command_line.command import argument
from helixweb.command_line.failures import CommandFailed
from helixweb.command_line.output import Cells, json_line, number, percent, table
from helixweb.command_line.session import Session

POLL_S = 0.5
FINISHED = ("succeeded", "failed", "cancelled")
NO_WAIT = argument("--no-wait", action="store_true", help="print what was begun and return")


def finished(
    site: Session,
    row: Row,
    read: Callable[[], Row],
    *,
    cancel: Callable[[], Row] | None = None,
    tell: Callable[[Row], None] = lambda row: None,
) -> Row:
    """`read` the row until its work has ended, and return it. The first Ctrl-C cancels the work."""
    while True:
        try:
            tell(row)
            if row["status"] in FINISHED:
                return row
            site.around.sleep(POLL_S)
            row = read()
        except KeyboardInterrupt:
            if cancel is None:
                raise
            site.around.warn("ending the search; the best plan so far is kept")
            row, cancel = cancel(), None


def searched(site: Session, run: Row, arguments: Namespace) -> int:
    """Show the run, or wait for its end and show its plan. Raises CommandFailed without a plan."""
    if arguments.no_wait:
        site.show(run, f"plan run {run['id']} is {run['status']}")
        return exit_codes.OK
    runs, number_ = site.client.plan_runs, run["id"]
    run = finished(
        site,
        run,
        lambda: runs.get(number_),
        cancel=lambda: runs.do("cancel", number_),
        tell=_Progress(site),
    )
    show_plan_of(site, run)
    return exit_codes.OK if run["status"] != "failed" else exit_codes.FAILED


def show_plan_of(site: Session, run: Row) -> None:
    """Raises CommandFailed if the run has no plan."""
    if run["plan"] is None:
        raise CommandFailed(f"plan run {run['id']} {run['status']}: {run['error'] or 'no plan'}")
    show_plan(site, site.client.plans.get(run["plan"]))


def show_plan(site: Session, plan: Row) -> None:
    placement = plan["document"].get("placement") or {}
    rows = [(node, f"[{first}, {end})") for node, (first, end) in sorted(placement.items())]
    cells: Cells = {
        "plan": "id",
        "flow": lambda plan: f"{number(plan['flow_tokens_per_s'])} tokens/s",
        "bound": lambda plan: f"{number(plan['upper_bound_tokens_per_s'])} tokens/s",
        "gap": "gap",
        "hops": "hops",
    }
    site.show_row(plan, cells, table(("NODE", "LAYERS"), rows) if rows else "")


class _Progress:
    """Shows a run: on a terminal one line, else each incumbent on stderr."""

    def __init__(self, site: Session) -> None:
        self._site, self._shown, self._seen = site, "", 0

    def __call__(self, run: Row) -> None:
        out = self._site.around.out
        if not self._site.around.is_terminal or self._site.as_json:
            self._write_incumbents(run["id"])
            return
        best, bound = number(run["flow_tokens_per_s"]), number(run["upper_bound_tokens_per_s"])
        line = (
            f"run {run['id']} {run['status']}  best {best}  bound {bound} tokens/s  "
            f"gap {percent(run['gap'])}"
        )
        end = "\n" if run["status"] in FINISHED else ""
        out.write(f"\r{line.ljust(len(self._shown))}{end}")
        out.flush()
        self._shown = line

    def _write_incumbents(self, run: int) -> None:
        err = self._site.around.err
        for one in self._site.client.plan_runs.rows("incumbents", run, offset=self._seen):
            self._seen += 1
            flow, bound = number(one["flow_tokens_per_s"]), number(one["upper_bound_tokens_per_s"])
            text = (
                f"{number(one['elapsed_s'])} s  {one['placer']}: {flow} tokens/s, bound {bound}, "
                f"gap {percent(one['gap'])}"
            )
            err.write(f"{json_line({'incumbent': one}) if self._site.as_json else text}\n")
        err.flush()
