"""Changes a cluster under its plan in many ways and replans; prints what moves how many bytes.

    OMP_NUM_THREADS=1 python -m benchmarks.planner.replan cluster.json --change lost --seconds 10

Seconds are of CPU time. README.md beside this file says how to read the table.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path

from planner.domain.cluster import COORDINATOR
from planner.domain.placement import Placement
from planner.domain.plan import Plan
from planner.domain.problem import Problem
from planner.larger_problems import with_one_more_node
from planner.placers.alignment import aligned_to
from planner.placers.base import NeverCancelled
from planner.placers.budgeted_moves import moved_layers
from planner.plan_options import PlanOptions
from planner.planning import compute_plan
from planner.replanning.answers import ReplanPoint
from planner.replanning.compute_replan import replan
from planner.replanning.options import ReplanOptions
from planner.serialization import problem_from_text

HEADER = (
    f"{'change':<28}{'zero moves':>11}{'scratch':>9}{'GB':>7}{'alike':>7}"
    f"{'1/4 of GB':>11}{'at':>6}{'of alike':>10}{'at':>6}{'GB for 97 %':>13}{'gap':>7}{'first':>7}"
)
QUARTER = 0.25
CLOSE_ENOUGH = 0.97
SLOWER = 0.1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problem", type=Path, metavar="PROBLEM")
    parser.add_argument("--change", choices=sorted(CHANGES), default="lost")
    parser.add_argument("--seconds", type=float, default=10.0, help="per change, and from scratch")
    parser.add_argument(
        "--output", type=Path, metavar="ROWS.json", help="keep the rows; go on after those it has"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every", type=int, default=1, help="make only every so many-th change")
    parsed = parser.parse_args()
    problem = problem_from_text(parsed.problem.read_text(), name_hint=str(parsed.problem))
    options = PlanOptions(objective="flow", time_limit_s=parsed.seconds, seed=parsed.seed)
    running = _plan(problem, options)
    print(f"{problem.name}: {running.flow.value_tokens_per_s:.1f} tokens/s before")
    print(HEADER, flush=True)
    changes = list(CHANGES[parsed.change](problem, running.placement))
    rows = [] if parsed.output is None else _kept(parsed.output)
    for row in rows:
        print(row.text(), flush=True)
    done = {row.change for row in rows}
    for label, changed in changes[:: parsed.every]:
        if label in done:
            continue
        rows.append(
            replanned(
                label, changed, running.placement, fresh=_plan(changed, options), options=options
            )
        )
        print(rows[-1].text(), flush=True)
        if parsed.output is not None:
            parsed.output.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    close = sum(row.quarter.share >= CLOSE_ENOUGH for row in rows)
    print(f"{close} of {len(rows)} within 3 % of the flow at a quarter of the bytes")
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Within:
    """The best answer's share of the flow within a limit, and when one first came close enough."""

    share: float
    close_at_s: float | None

    def text(self, width: int) -> str:
        return f"{self.share:>{width}.3f}{_seconds(self.close_at_s):>6}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one change led to; bytes are those that are moved, flows in tokens/s."""

    change: str
    zero_moves_flow: float
    fresh_flow: float
    fresh_bytes: float
    alike_bytes: float
    quarter: Within
    quarter_of_alike: Within
    bytes_close_enough: float | None
    gap: float
    first_s: float | None

    def text(self) -> str:
        close = "-" if self.bytes_close_enough is None else f"{self.bytes_close_enough / 1e9:.1f}"
        return (
            f"{self.change:<28}{self.zero_moves_flow:>11.1f}{self.fresh_flow:>9.1f}"
            f"{self.fresh_bytes / 1e9:>7.1f}{self.alike_bytes / 1e9:>7.1f}"
            f"{self.quarter.text(11)}{self.quarter_of_alike.text(10)}{close:>13}"
            f"{self.gap:>7.1%}{_seconds(self.first_s):>7}"
        )


def _kept(path: Path) -> list[Row]:
    """The rows that an earlier run left."""
    if not path.exists():
        return []
    return [
        Row(
            **row
            | {"quarter": Within(**row["quarter"])}
            | {"quarter_of_alike": Within(**row["quarter_of_alike"])}
        )
        for row in json.loads(path.read_text())
    ]


def _lost(problem: Problem, running: Placement) -> Iterator[tuple[str, Problem]]:
    for name in sorted(running.layers):
        yield _label(problem, name), _without(problem, {name})


def _two_lost(problem: Problem, running: Placement) -> Iterator[tuple[str, Problem]]:
    for one, other in pairwise(sorted(running.layers)):
        yield f"{_label(problem, one)}, {other}", _without(problem, {one, other})


def _added(problem: Problem, _running: Placement) -> Iterator[tuple[str, Problem]]:
    for resource, larger in with_one_more_node(problem):
        yield str(resource), larger


def _slower(problem: Problem, running: Placement) -> Iterator[tuple[str, Problem]]:
    """All links of one node carry a tenth."""
    cluster = problem.cluster
    ends = [node.name for node in cluster.nodes] + [COORDINATOR]
    for name in sorted(running.layers):
        links = {(link.source, link.target): link for link in cluster.links}
        for source, target in [(name, end) for end in ends] + [(end, name) for end in ends]:
            link = cluster.link_between(source, target) if source != target else None
            if link is not None:
                slow = link.bandwidth_bytes_per_s * SLOWER
                links[source, target] = replace(link, bandwidth_bytes_per_s=slow)
        changed = replace(cluster, links=tuple(links.values()))
        yield f"{_label(problem, name)} slow", replace(problem, cluster=changed)


CHANGES = {"lost": _lost, "two-lost": _two_lost, "added": _added, "slower": _slower}


def _label(problem: Problem, name: str) -> str:
    return f"{name} {problem.cluster.node(name).compute_profile}"


def _without(problem: Problem, names: set[str]) -> Problem:
    return replace(problem, cluster=problem.cluster.without(names))


def _plan(problem: Problem, options: PlanOptions) -> Plan:
    return compute_plan(
        problem,
        options=options,
        progress=lambda _: None,
        cancel=NeverCancelled(),
        clock=time.process_time,
    )


def replanned(
    label: str, changed: Problem, running: Placement, *, fresh: Plan, options: PlanOptions
) -> Row:
    """Replan, and hold every answer on the way against the plan from scratch."""
    alike = aligned_to(changed, fresh.placement, running, rules=options.rules)
    heard: list[ReplanPoint] = []
    found = replan(
        changed,
        running,
        options=ReplanOptions(plan=options, time_limit_s=options.time_limit_s),
        progress=heard.append,
        cancel=NeverCancelled(),
        clock=time.process_time,
    )
    flow = fresh.flow.value_tokens_per_s
    moved, moved_alike = (
        moved_layers(running, placed) * changed.model.bytes_per_layer
        for placed in (fresh.placement, alike)
    )
    close = [p.moved_bytes for p in heard if p.flow_tokens_per_s >= CLOSE_ENOUGH * flow]
    bound = found.upper_bound_tokens_per_s
    return Row(
        change=label,
        zero_moves_flow=found.zero_moves.flow_tokens_per_s,
        fresh_flow=flow,
        fresh_bytes=moved,
        alike_bytes=moved_alike,
        quarter=_within(heard, QUARTER * moved, flow),
        quarter_of_alike=_within(heard, QUARTER * moved_alike, flow),
        bytes_close_enough=min(close, default=None),
        gap=1 - found.chosen.flow_tokens_per_s / bound,
        first_s=next((point.elapsed_s for point in heard if point.flow_tokens_per_s > 0), None),
    )


def _within(heard: list[ReplanPoint], limit_bytes: float, flow: float) -> Within:
    within = [point for point in heard if point.moved_bytes <= limit_bytes]
    shares = [(point.flow_tokens_per_s / flow, point.elapsed_s) for point in within]
    return Within(
        share=max((share for share, _ in shares), default=0.0),
        close_at_s=next((at for share, at in shares if share >= CLOSE_ENOUGH), None),
    )


def _seconds(elapsed_s: float | None) -> str:
    return "-" if elapsed_s is None else f"{elapsed_s:.2f}"


if __name__ == "__main__":
    sys.exit(main())
