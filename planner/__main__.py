"""The planner's shell commands: `solve` writes a plan, `compare` tabulates placers.

Exit codes: 0 done (also when Ctrl-C ended the search early: the best plan so far is written),
2 bad input or no plan, with one line on stderr.
"""

import argparse
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn, get_args

from planner.bounds import compute_bound_tokens_per_s, upper_bound_tokens_per_s
from planner.capacity import check_cluster_can_hold_model
from planner.compute_plan import BASELINES, PlanOptions, compute_plan
from planner.domain.errors import InvalidProblem, PlannerError
from planner.domain.flow import Flow
from planner.domain.plan import Incumbent, Plan
from planner.domain.problem import Problem
from planner.max_flow import max_flow, mean_hops
from planner.placers.solvers.choice import SolverName
from planner.serialization import (
    plan_to_dict,
    problem_from_text,
    published_placements_from_text,
)

EXIT_OK = 0
EXIT_BAD_INPUT = 2
_LABEL_WIDTH = 38


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    parsed = _parser().parse_args(arguments)
    try:
        if parsed.command == "solve":
            _solve(parsed)
        else:
            _compare(parsed)
    except (PlannerError, OSError) as error:
        print(f"planner: {_one_line(error)}", file=sys.stderr)
        return EXIT_BAD_INPUT
    return EXIT_OK


class _OneLineParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_BAD_INPUT, f"{self.prog}: {message} (see {self.prog} --help)\n")


def _parser() -> argparse.ArgumentParser:
    parser = _OneLineParser(prog="planner", description="Place a model's layers on mixed nodes.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    solve = commands.add_parser("solve", help="compute a plan and write it to a file")
    solve.add_argument("--output", type=Path, required=True, metavar="PLAN.json")
    compare = commands.add_parser("compare", help="tabulate the flow of every placer's placement")
    compare.add_argument(
        "--placements",
        type=Path,
        metavar="FILE.published.json",
        help="also recompute the flow of these placements: {name: {layers, max_flow_tokens_per_s}}",
    )
    for command in (solve, compare):
        _add_common_arguments(command)
    solve.set_defaults(time_limit=60.0)
    return parser


def _add_common_arguments(command: argparse.ArgumentParser) -> None:
    defaults = PlanOptions()
    command.add_argument("problem", type=Path, metavar="PROBLEM", help="JSON or YAML problem file")
    command.add_argument(
        "--time-limit",
        type=float,
        metavar="S",
        help="seconds for the MILP (solve: 60; compare: without it the MILP is left out)",
    )
    command.add_argument(
        "--partial-inference",
        action=argparse.BooleanOptionalAction,
        default=defaults.partial_inference,
        help="let a request run fewer layers on a node than it holds",
    )
    command.add_argument("--solver", choices=get_args(SolverName), default=defaults.solver)
    command.add_argument(
        "--prune-degree", type=float, metavar="LINKS", help="keep this many links per node"
    )
    command.add_argument(
        "--warm-start",
        default=defaults.warm_start,
        metavar="WHICH",
        help=f"start from best, none, or a baseline: {', '.join(BASELINES)}",
    )
    command.add_argument(
        "--relative-gap",
        type=float,
        default=defaults.relative_gap,
        metavar="RATIO",
        help="stop this close to the proven bound (default: %(default)s)",
    )
    command.add_argument(
        "--seed", type=int, default=defaults.seed, help="of the search (default: %(default)s)"
    )


def _solve(parsed: argparse.Namespace) -> None:
    options = _plan_options(parsed, time_limit_s=parsed.time_limit)
    output: Path = parsed.output
    _check_writable(output)
    plan = _compute(_read_problem(parsed.problem), options)
    _write_atomically(output, json.dumps(plan_to_dict(plan), indent=1, allow_nan=False) + "\n")
    print(
        f"{output}: {plan.flow.value_tokens_per_s:.1f} tokens/s by {plan.placer}, "
        f"{plan.gap:.1%} below the bound, {plan.hops:.1f} hops, "
        f"{len(plan.placement.layers)} nodes; stopped: {plan.stop_reason}, solver: {plan.solver}"
    )


def _compare(parsed: argparse.Namespace) -> None:
    problem = _read_problem(parsed.problem)
    check_cluster_can_hold_model(problem)
    bound = upper_bound_tokens_per_s(problem)
    partial: bool = parsed.partial_inference
    print(
        f"{problem.name}: {len(problem.cluster.nodes)} nodes, {problem.model.num_layers} layers, "
        f"partial inference {'on' if partial else 'off'}; bound {bound:.1f} tokens/s "
        f"(all compute / layers: {compute_bound_tokens_per_s(problem):.1f})"
    )
    print(
        f"{'placer':<{_LABEL_WIDTH}}{'tokens/s':>10}{'of bound':>10}{'hops':>7}{'nodes':>7}  remark"
    )
    for name, place in BASELINES.items():
        placement = place(problem)
        if placement is None:
            print(
                f"{name:<{_LABEL_WIDTH}}{'-':>10}{'-':>10}{'-':>7}{'-':>7}  does not fit this way"
            )
        else:
            flow = max_flow(problem, placement, partial_inference=partial)
            _print_row(name, flow, bound=bound)
    if parsed.time_limit is not None:
        plan = _compute(problem, _plan_options(parsed, time_limit_s=parsed.time_limit))
        remark = f"{plan.stop_reason}; proven bound {plan.upper_bound_tokens_per_s:.1f}"
        _print_row(f"solve ({plan.placer})", plan.flow, bound=bound, remark=remark)
    if parsed.placements is not None:
        _compare_published(problem, parsed.placements, bound=bound)


def _compare_published(problem: Problem, path: Path, *, bound: float) -> None:
    """Published flows are those with partial inference; so are these, whatever was asked above."""
    published = published_placements_from_text(
        _read_text(path), name_hint=str(path), num_layers=problem.model.num_layers
    )
    for name, entry in published.items():
        flow = max_flow(problem, entry.placement, partial_inference=True)
        expected = entry.max_flow_tokens_per_s
        percent = 100 * (flow.value_tokens_per_s - expected) / max(expected, 1e-9)
        remark = f"published {expected:.1f}, differs by {abs(percent):.3f} %"
        _print_row(f"published: {name}", flow, bound=bound, remark=remark)


def _print_row(label: str, flow: Flow, *, bound: float, remark: str = "") -> None:
    value = flow.value_tokens_per_s
    share = value / bound if bound > 0 else 0.0
    row = f"{label:<{_LABEL_WIDTH}}{value:>10.1f}{share:>10.1%}{mean_hops(flow):>7.1f}"
    print(f"{row}{len(flow.nodes):>7}  {remark}".rstrip())


def _plan_options(parsed: argparse.Namespace, *, time_limit_s: float) -> PlanOptions:
    return PlanOptions(
        time_limit_s=time_limit_s,
        partial_inference=parsed.partial_inference,
        solver=parsed.solver,
        prune_degree=parsed.prune_degree,
        warm_start=parsed.warm_start,
        relative_gap=parsed.relative_gap,
        seed=parsed.seed,
    )


class _Interrupt:
    """A cancel token that Ctrl-C or SIGTERM sets."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def is_cancelled(self) -> bool:
        return self._event.is_set()

    @contextmanager
    def listening(self) -> Iterator[None]:
        def on_signal(number: int, _: FrameType | None) -> None:
            if not self._event.is_set():
                name = signal.Signals(number).name
                print(f"{name}: stopping; the best plan so far is kept", file=sys.stderr)
            self._event.set()

        previous = {
            number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


def _compute(problem: Problem, options: PlanOptions) -> Plan:
    interrupt = _Interrupt()
    with interrupt.listening():
        return compute_plan(problem, options=options, progress=_print_progress, cancel=interrupt)


def _print_progress(incumbent: Incumbent) -> None:
    flow, bound = incumbent.flow_tokens_per_s, incumbent.upper_bound_tokens_per_s
    print(
        f"{incumbent.elapsed_s:8.1f} s  {flow:12.1f} tokens/s  bound {bound:12.1f}  "
        f"gap {1 - flow / bound:7.2%}  {incumbent.placer}",
        file=sys.stderr,
        flush=True,
    )


def _read_problem(path: Path) -> Problem:
    return problem_from_text(_read_text(path), name_hint=str(path))


def _read_text(path: Path) -> str:
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory; name a file in it")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidProblem(
            f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8 text"
        ) from None


def _check_writable(output: Path) -> None:
    """Before the search, not after it."""
    if output.is_dir():
        raise IsADirectoryError(f"{output} is a directory; name a file")
    if output.exists() and not output.is_file():
        raise OSError(f"{output} is not a regular file; name a file")
    if not output.parent.is_dir():
        raise FileNotFoundError(f"{output.parent} is not a directory; create it first")
    if not os.access(output.parent, os.W_OK):
        raise PermissionError(f"{output.parent} is not writable; name a file elsewhere")


def _write_atomically(output: Path, text: str) -> None:
    temporary = output.with_name(f".{output.name}.{os.getpid()}.partial")
    try:
        with temporary.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(output)
    finally:
        temporary.unlink(missing_ok=True)


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split())


if __name__ == "__main__":
    sys.exit(main())
