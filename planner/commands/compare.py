"""`planner compare`: what the baselines and the placers make of a problem, side by side."""

import argparse
import csv
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from planner.bounds.best import upper_bound_tokens_per_s
from planner.bounds.knapsack import compute_bound_tokens_per_s
from planner.commands.drawing import BLUE, FAINT, RED, Drawing
from planner.commands.files import read_text
from planner.commands.forecasts import forecast_lines
from planner.commands.options import (
    add_objective_options,
    add_plan_options,
    plan_options,
    timed_problem,
)
from planner.commands.progress import Interrupt, LogProgress
from planner.domain.errors import InvalidPlacement
from planner.domain.flow import Flow
from planner.domain.plan_forecast import PlanForecast
from planner.domain.problem import Problem
from planner.feasibility import check_rules, conform, restricted_problem
from planner.max_flow import max_flow, mean_hops
from planner.objectives.contest import FINAL
from planner.objectives.trial import Trials
from planner.placers.base import PLACERS, InvalidOptions
from planner.placers.board import flow_under
from planner.plan_options import BASELINES, PlanOptions
from planner.planning import NoPlacementFound, compute_plan
from planner.serialization import published_placements_from_text
from planner.serialization.records import record_to_dict

_SECONDS_PER_PLACER = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A placement's flow, 0 where there is none; `not_simulated` is why a forecast lacks that."""

    name: str
    flow_tokens_per_s: float = 0.0
    share_of_bound: float = 0.0
    hops: float = 0.0
    nodes: int = 0
    remark: str = ""
    forecast: PlanForecast | None = None
    not_simulated: str = ""

    def as_dict(self) -> dict[str, object]:
        record = record_to_dict(self)
        del record["not_simulated"]
        return record


def add_arguments(command: argparse.ArgumentParser) -> None:
    add_plan_options(command, time_limit_s=None)
    add_objective_options(command)
    command.add_argument(
        "--placers",
        metavar="all|NAME,...",
        help="plan by each of these placers as well, for the time limit each (default: "
        f"{_SECONDS_PER_PLACER:g} s)",
    )
    command.add_argument(
        "--placements",
        type=Path,
        metavar="FILE.published.json",
        help="also recompute the flow of these placements: {name: {layers, max_flow_tokens_per_s}}",
    )
    shown = command.add_mutually_exclusive_group()
    for kind, what in (("json", "one document"), ("csv", "a table"), ("svg", "a picture")):
        shown.add_argument(
            f"--{kind}",
            dest="shown_as",
            action="store_const",
            const=kind,
            help=f"write {what} in {kind.upper()} to stdout",
        )


def run(parsed: argparse.Namespace) -> None:
    placers = _placers(parsed)
    if placers and parsed.time_limit_s is None:
        parsed.time_limit_s = _SECONDS_PER_PLACER
    options = plan_options(parsed, objective="decode")
    whole = timed_problem(parsed)
    check_rules(whole, options.rules)
    problem = restricted_problem(whole, options.rules)
    bound = upper_bound_tokens_per_s(problem)
    simulates = parsed.time_limit_s is not None
    rows = _rows(whole, problem, options, placers, parsed.placements, bound, simulates=simulates)
    if parsed.shown_as is None:
        _print_table(problem, options, bound, rows)
    elif parsed.shown_as == "svg":
        print(_picture(problem, bound, list(rows)).svg(), end="")
    elif parsed.shown_as == "json":
        placed = [row.as_dict() for row in rows]
        document = {"problem": problem.name, "bound_tokens_per_s": bound, "placements": placed}
        print(json.dumps(document, indent=2))
    else:
        _write_csv(list(rows))


def _placers(parsed: argparse.Namespace) -> list[str]:
    """Placers to compare: those listed, else the chosen one if there is time for it."""
    if parsed.placers is None:
        return [] if parsed.time_limit_s is None else [parsed.placer]
    names = list(PLACERS) if parsed.placers == "all" else parsed.placers.split(",")
    for name in names:
        if name not in PLACERS:
            raise InvalidOptions(f"--placers has {name!r}; use all, or of {', '.join(PLACERS)}")
    return names


def _rows(
    whole: Problem,
    problem: Problem,
    options: PlanOptions,
    placers: list[str],
    published: Path | None,
    bound: float,
    *,
    simulates: bool,
) -> Iterator[_Row]:
    yield from _baselines(problem, options, bound, simulates=simulates)
    interrupt = Interrupt()
    for name in placers:
        if interrupt.is_cancelled():
            break
        try:
            with interrupt.listening():
                plan = compute_plan(
                    whole,
                    options=replace(options, placer=name),
                    progress=LogProgress(sys.stderr),
                    cancel=interrupt,
                )
        except NoPlacementFound as error:
            yield _Row(name=f"solve ({name})", remark=str(error))
            continue
        remark = f"{plan.stop_reason}; proven bound {plan.upper_bound_tokens_per_s:.1f}"
        label = f"{name}: {plan.placer}" if len(placers) > 1 else plan.placer
        row = _row(f"solve ({label})", plan.flow, bound=bound, remark=remark)
        yield replace(row, forecast=plan.forecast)
    if published is not None:
        yield from _published(whole, published, bound=bound)


def _baselines(
    problem: Problem, options: PlanOptions, bound: float, *, simulates: bool
) -> Iterator[_Row]:
    """Rows of baselines; for served tokens, simulated with the seeds of a plan's forecast."""
    options = replace(options, rules=options.rules.once_restricted)
    trials = None if options.objective == "flow" else Trials(problem, options)
    seeds = (options.seed + 1, options.seed + 2)
    for name, place in BASELINES.items():
        placement = place(problem)
        if placement is None:
            yield _Row(name=name, remark="does not fit this way")
            continue
        placement = conform(problem, placement, options.rules)
        flow = flow_under(options, problem, placement)
        row = _row(name, flow, bound=bound)
        if trials is not None:
            trial = trials.estimated(placement, placer=name)
            figures, reason = None, "give --time-limit to simulate"
            if simulates:
                figures = trials.simulated(trial, seeds=seeds, span=FINAL)
                reason = "no request of such lengths fits"
            forecast = trials.forecast(trial, figures)
            row = replace(row, forecast=forecast, not_simulated=reason)
        yield row


def _published(problem: Problem, path: Path, *, bound: float) -> Iterator[_Row]:
    """Published flows are those with partial inference; so are these, whatever was asked above."""
    published = published_placements_from_text(
        read_text(path), name_hint=str(path), num_layers=problem.model.num_layers
    )
    for name, entry in published.items():
        try:
            flow = max_flow(problem, entry.placement, partial_inference=True)
        except InvalidPlacement as error:
            raise InvalidPlacement(f"{path}: {name}: {error}") from None
        expected = entry.max_flow_tokens_per_s
        percent = 100 * (flow.value_tokens_per_s - expected) / max(expected, 1e-9)
        remark = f"published {expected:.1f}, differs by {abs(percent):.3f} %"
        yield _row(f"published: {name}", flow, bound=bound, remark=remark)


def _row(name: str, flow: Flow, *, bound: float, remark: str = "") -> _Row:
    value = flow.value_tokens_per_s
    return _Row(
        name=name,
        flow_tokens_per_s=value,
        share_of_bound=value / bound if bound > 0 else 0.0,
        hops=mean_hops(flow),
        nodes=len(flow.nodes),
        remark=remark,
    )


def _print_table(
    problem: Problem, options: PlanOptions, bound: float, rows: Iterator[_Row]
) -> None:
    print(
        f"{problem.name}: {len(problem.cluster.nodes)} nodes, {problem.model.num_layers} layers, "
        f"partial inference {'on' if options.partial_inference else 'off'}; "
        f"bound {bound:.1f} tokens/s "
        f"(all compute / layers: {compute_bound_tokens_per_s(problem):.1f})"
    )
    print(f"{'placer':<38}{'tokens/s':>10}{'of bound':>10}{'hops':>7}{'nodes':>7}  remark")
    for row in rows:
        figures = (
            f"{row.flow_tokens_per_s:>10.1f}{row.share_of_bound:>10.1%}{row.hops:>7.1f}"
            f"{row.nodes:>7}"
        )
        if row.nodes == 0:
            figures = f"{'-':>10}{'-':>10}{'-':>7}{'-':>7}"
        print(f"{row.name:<38}{figures}  {row.remark}".rstrip(), flush=True)
        if row.forecast is not None:
            for line in forecast_lines(row.forecast, not_simulated=row.not_simulated):
                print(f"  {line}")


def _write_csv(rows: list[_Row]) -> None:
    """A line each; of a forecast the value by which placements are compared."""
    lines = [{**row.as_dict(), "forecast": row.forecast and row.forecast.value} for row in rows]
    writer = csv.DictWriter(sys.stdout, list(lines[0]))
    writer.writeheader()
    writer.writerows(lines)


def _picture(problem: Problem, bound: float, rows: list[_Row]) -> Drawing:
    """A bar for each flow, as long as its share of the bound."""
    left, width, line = 330, 480, 30
    drawing = Drawing(
        left + width + 260,
        len(rows) * line + 70,
        f"{problem.name}: flow by placer, of at most {bound:.1f} tokens/s",
    )
    drawing.words(20, 24, drawing.title, at="start", bold=True)
    for number, row in enumerate(rows):
        y = 44 + number * line
        drawing.words(left - 12, y + 16, row.name, at="end")
        drawing.box(left, y, row.share_of_bound * width, line - 8, fill=BLUE, stroke=BLUE)
        figures = f"{row.flow_tokens_per_s:.1f}"
        if row.forecast is not None:
            figures += f" · {row.forecast.objective} {row.forecast.value:.4g}"
        drawing.words(left + width + 12, y + 16, figures, at="start")
    drawing.line(left + width, 36, left + width, drawing.height - 24, colour=RED, dashed=True)
    drawing.words(left + width, drawing.height - 8, "bound", size=12, colour=FAINT)
    return drawing
