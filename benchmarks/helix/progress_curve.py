"""Incumbent and bound over the seconds of a search: published traces, and runs of our own."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from planner.bounds.best import upper_bound_tokens_per_s
from planner.commands.files import read_text
from planner.domain.plan import Incumbent
from planner.domain.problem import Problem
from planner.placers.base import NeverCancelled
from planner.plan_options import BASELINES, PlanOptions
from planner.planning import NoPlacementFound, compute_plan

_ALIKE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What a search knew at one moment; the incumbent is a flow, 0 for none that carries any."""

    time_s: float
    incumbent_tokens_per_s: float
    bound_tokens_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressCurve:
    """`points` are in order of time, at least one."""

    problem: str
    name: str
    source: str
    points: tuple[Point, ...]

    @property
    def best_tokens_per_s(self) -> float:
        return max(point.incumbent_tokens_per_s for point in self.points)

    @property
    def bound_tokens_per_s(self) -> float:
        """The last, and so the tightest."""
        return self.points[-1].bound_tokens_per_s

    @property
    def best_at_s(self) -> float:
        """When the best flow was first known."""
        least = self.best_tokens_per_s * (1 - _ALIKE)
        return next(p.time_s for p in self.points if p.incumbent_tokens_per_s >= least)

    @property
    def proven_at_s(self) -> float | None:
        """When the bound came within 3 % of the best flow; None for never."""
        limit = self.best_tokens_per_s * 1.03
        return next((p.time_s for p in self.points if p.bound_tokens_per_s <= limit), None)


def read_trace(path: Path, *, problem: str, name: str) -> ProgressCurve:
    """A CSV file with the columns time_s, incumbent, best_bound."""
    rows = csv.DictReader(io.StringIO(read_text(path)))
    points = tuple(
        Point(
            time_s=float(row["time_s"]),
            incumbent_tokens_per_s=max(0.0, float(row["incumbent"])),
            bound_tokens_per_s=float(row["best_bound"]),
        )
        for row in rows
    )
    if not points:
        raise ValueError(f"{path} has no rows; give a trace with at least one")
    return ProgressCurve(problem=problem, name=name, source="published trace", points=points)


def searched(
    problem: Problem,
    *,
    name: str,
    prune_degree: float | None,
    with_start: bool,
    time_limit_s: float,
    seed: int,
) -> ProgressCurve:
    """Our MILP's run, from the baselines or from nothing."""
    points: list[Point] = []

    def hear(incumbent: Incumbent) -> None:
        points.append(
            Point(
                time_s=incumbent.elapsed_s,
                incumbent_tokens_per_s=incumbent.flow_tokens_per_s,
                bound_tokens_per_s=incumbent.upper_bound_tokens_per_s,
            )
        )

    options = PlanOptions(
        objective="flow",
        placer="milp",
        prune_degree=prune_degree,
        time_limit_s=time_limit_s,
        seed=seed,
        baselines=tuple(BASELINES) if with_start else (),
        warm_start="best" if with_start else "none",
    )
    try:
        plan = compute_plan(problem, options=options, progress=hear, cancel=NeverCancelled())
    except NoPlacementFound:
        points.append(
            Point(
                time_s=time_limit_s,
                incumbent_tokens_per_s=0.0,
                bound_tokens_per_s=upper_bound_tokens_per_s(problem),
            )
        )
    else:
        points.append(
            Point(
                time_s=plan.elapsed_s,
                incumbent_tokens_per_s=plan.flow.value_tokens_per_s,
                bound_tokens_per_s=plan.upper_bound_tokens_per_s,
            )
        )
    return ProgressCurve(problem=problem.name, name=name, source="our run", points=tuple(points))


def curves_to_csv(curves: Sequence[ProgressCurve]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("problem", "search", "source", "time_s", "incumbent", "bound"))
    for curve in curves:
        for point in curve.points:
            writer.writerow(
                (
                    curve.problem,
                    curve.name,
                    curve.source,
                    f"{point.time_s:.3f}",
                    f"{point.incumbent_tokens_per_s:.3f}",
                    f"{point.bound_tokens_per_s:.3f}",
                )
            )
    return text.getvalue()
