"""Runs every placement method on given problem files and generated clusters; prints one table.

    OMP_NUM_THREADS=1 python -m benchmarks.planner.compare_methods cluster.json --seconds 10

README.md beside this file says how to read the table.
"""

import argparse
import statistics
import sys
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from planner.bounds.knapsack import knapsack_bound_tokens_per_s
from planner.domain.errors import PlannerError
from planner.domain.problem import Problem
from planner.domain.rules import PlacementRules
from planner.feasibility import conform
from planner.generate import generated_cluster
from planner.max_flow import max_flow, mean_hops
from planner.placers.base import NeverCancelled
from planner.plan_options import BASELINES, PlanOptions
from planner.planning import NoPlacementFound, compute_plan
from planner.serialization import problem_from_text

HERE = Path(__file__).parent
BASELINES_METHOD = "baselines"
HEADER = (
    f"{'problem':<54}{'method':<20}{'tokens/s':>10}{'least':>10}{'of B1':>8}"
    f"{'bound':>10}{'gap':>8}{'hops':>7}{'best at':>9}{'ended':>8}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A problem under rules, by name."""

    name: str
    problem: Problem
    rules: PlacementRules


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One run. `best_at_s`: when the final flow was first reached; `bound` is the plan's own."""

    flow_tokens_per_s: float
    bound_tokens_per_s: float
    hops: float
    best_at_s: float
    ended_s: float


def main() -> int:
    parsed = _parser().parse_args()
    parameters = tomllib.loads(parsed.parameters.read_text(encoding="utf-8"))
    methods = parsed.methods.split(",") if parsed.methods else parameters["methods"]
    seeds = [int(seed) for seed in parsed.seeds.split(",")] if parsed.seeds else parameters["seeds"]
    seconds = parsed.seconds or parameters["time_limit_s"]
    print(HEADER, flush=True)
    for case in _cases(parsed.problems, parameters, generated=parsed.generated):
        knapsack = knapsack_bound_tokens_per_s(case.problem)
        for method in methods:
            try:
                results = [_run(case, method, seed=seed, seconds=seconds) for seed in seeds]
            except PlannerError as error:
                print(f"{case.name:<54}{method:<20}{' '.join(str(error).split())[:70]}", flush=True)
                continue
            print(_row(case, method, results, knapsack=knapsack), flush=True)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problems", nargs="*", type=Path, metavar="PROBLEM")
    parser.add_argument("--parameters", type=Path, default=HERE / "parameters.toml")
    parser.add_argument("--methods", help="comma-separated, instead of the parameters'")
    parser.add_argument("--seeds", help="comma-separated, instead of the parameters'")
    parser.add_argument("--seconds", type=float, help="per plan, instead of the parameters'")
    parser.add_argument("--generated", action=argparse.BooleanOptionalAction, default=True)
    return parser


def _cases(paths: list[Path], parameters: dict, *, generated: bool) -> Iterator[Case]:
    problems = [problem_from_text(path.read_text(), name_hint=str(path)) for path in paths]
    if generated:
        problems += [generated_cluster(**cluster) for cluster in parameters["generated"]]
    for problem in problems:
        for variant in parameters["variants"]:
            yield Case(
                name=f"{problem.name} {variant['name']}".strip(),
                problem=problem,
                rules=PlacementRules(max_hops=variant.get("max_hops")),
            )


def _run(case: Case, method: str, *, seed: int, seconds: float) -> Result:
    if method == BASELINES_METHOD:
        return _run_baselines(case)
    best_at_s = 0.0
    best_flow = 0.0

    def hear(incumbent) -> None:
        nonlocal best_at_s, best_flow
        if incumbent.flow_tokens_per_s > best_flow:
            best_at_s, best_flow = time.perf_counter() - started_s, incumbent.flow_tokens_per_s

    started_s = time.perf_counter()
    plan = compute_plan(
        case.problem,
        options=PlanOptions(
            objective="flow", time_limit_s=seconds, placer=method, seed=seed, rules=case.rules
        ),
        progress=hear,
        cancel=NeverCancelled(),
    )
    return Result(
        flow_tokens_per_s=plan.flow.value_tokens_per_s,
        bound_tokens_per_s=plan.upper_bound_tokens_per_s,
        hops=plan.hops,
        best_at_s=best_at_s,
        ended_s=time.perf_counter() - started_s,
    )


def _run_baselines(case: Case) -> Result:
    started_s = time.perf_counter()
    flows = []
    for place in BASELINES.values():
        placement = place(case.problem)
        if placement is not None:
            flows.append(
                max_flow(
                    case.problem,
                    conform(case.problem, placement, case.rules),
                    partial_inference=True,
                    max_hops=case.rules.max_hops,
                )
            )
    if not flows:
        raise NoPlacementFound("no baseline can hold the model")
    best = max(flows, key=lambda flow: flow.value_tokens_per_s)
    elapsed_s = time.perf_counter() - started_s
    return Result(
        flow_tokens_per_s=best.value_tokens_per_s,
        bound_tokens_per_s=knapsack_bound_tokens_per_s(case.problem),
        hops=mean_hops(best),
        best_at_s=elapsed_s,
        ended_s=elapsed_s,
    )


def _row(case: Case, method: str, results: list[Result], *, knapsack: float) -> str:
    """Medians over the seeds, and the least flow."""
    flow, bound, hops, best_at_s, ended_s = (
        statistics.median(getattr(result, name) for result in results)
        for name in ("flow_tokens_per_s", "bound_tokens_per_s", "hops", "best_at_s", "ended_s")
    )
    least = min(result.flow_tokens_per_s for result in results)
    return (
        f"{case.name:<54}{method:<20}{flow:>10.1f}{least:>10.1f}{flow / knapsack:>8.3f}"
        f"{bound:>10.1f}{1 - flow / bound:>8.2%}{hops:>7.1f}{best_at_s:>9.2f}{ended_s:>8.2f}"
    )


if __name__ == "__main__":
    sys.exit(main())
