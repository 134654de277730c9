"""Holds `python -m planner solve` against what is asked of it; prints one table.

    OMP_NUM_THREADS=1 python -m benchmarks.planner.acceptance PROBLEMS_FOLDER [--only WORD] ...
        [--seeds SEED ...] [--cpu-clock]

PROBLEMS_FOLDER has the published problems. Every flow is computed again from the files alone, by
networkx on a graph that is made here (preflow-push), or, beyond 300 nodes, by the linear program
of `planner.flow_check`. README.md beside this file says how to read the table.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import networkx as nx
from networkx.algorithms.flow import preflow_push

from planner.bounds.knapsack import knapsack_bound_tokens_per_s
from planner.domain.problem import Problem
from planner.domain.rules import PlacementRules
from planner.flow_check import nearly_equal
from planner.flow_graph import build_flow_graph
from planner.generate import generated_cluster
from planner.linear_flow import solve_linear_flow
from planner.placers.base import NeverCancelled
from planner.plan_options import PlanOptions
from planner.planning import compute_plan
from planner.serialization import plan_from_text, plan_to_dict, problem_from_text, problem_to_dict

PARAMETERS = Path(__file__).with_name("acceptance.toml")
ROOT = Path(__file__).resolve().parents[2]
GENERATED_SEED = 1
MOST_NODES_FOR_NETWORKX = 300
MOST_S_BEYOND_LIMIT = 1.0
HEADER = (
    f"{'problem':<36}{'seed':>5}{'flow':>10}{'of B1':>7}{'bound':>10}{'gap':>8}"
    f"{'seconds':>9}{'CPU s':>7}  ok"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A problem file and what a plan for it must reach; None where nothing is asked."""

    name: str
    path: Path
    within_s: float
    max_hops: int | None
    flow_at_least: float | None
    gap_at_most: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """`flow_tokens_per_s` is the one computed again; `cpu_s` is all of the process."""

    flow_tokens_per_s: float
    bound_tokens_per_s: float
    elapsed_s: float
    cpu_s: float

    @property
    def gap(self) -> float:
        return 1 - self.flow_tokens_per_s / self.bound_tokens_per_s

    def meets(self, case: Case) -> bool:
        return (
            self.elapsed_s <= case.within_s + MOST_S_BEYOND_LIMIT
            and (case.flow_at_least is None or self.flow_tokens_per_s >= case.flow_at_least)
            and (case.gap_at_most is None or self.gap <= case.gap_at_most)
        )


def main() -> int:
    parser = argparse.ArgumentParser(description="Holds the planner against what is asked of it.")
    parser.add_argument("problems", type=Path, metavar="PROBLEMS_FOLDER")
    parser.add_argument("--parameters", type=Path, default=PARAMETERS)
    parser.add_argument(
        "--only", action="append", default=[], metavar="WORD", help="cases with it in their names"
    )
    parser.add_argument(
        "--cpu-clock", action="store_true", help="limits in CPU seconds, in this process"
    )
    parser.add_argument("--seeds", type=int, nargs="+", help="instead of the parameters'")
    parsed = parser.parse_args()
    run = run_by_cpu_clock if parsed.cpu_clock else run_command
    parameters = tomllib.loads(parsed.parameters.read_text(encoding="utf-8"))
    seeds: list[int] = parsed.seeds or parameters["seeds"]
    failed = 0
    print(HEADER, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for case in cases(parameters, parsed.problems, Path(folder)):
            if parsed.only and not any(word in case.name for word in parsed.only):
                continue
            knapsack = knapsack_bound_tokens_per_s(read(case.path))
            passed = 0
            for seed in seeds:
                output = Path(folder) / "plan.json"
                result = checked(case, output=output, cpu_s=run(case, seed=seed, output=output))
                passed += result.meets(case)
                print(row(case, seed, result, knapsack=knapsack), flush=True)
            failed += passed < min(parameters["seeds_that_must_pass"], len(seeds))
    print(f"{failed} cases failed")
    return 1 if failed else 0


def cases(parameters: dict[str, Any], problems: Path, folder: Path) -> list[Case]:
    """The generated problems are written to the folder."""
    found = []
    for asked in parameters["published"]:
        hops = asked.get("max_hops")
        found.append(
            Case(
                name=asked["problem"] + ("" if hops is None else f", <= {hops} hops"),
                path=problems / f"{asked['problem']}.json",
                within_s=asked["within_s"],
                max_hops=hops,
                flow_at_least=asked["flow_at_least"],
                gap_at_most=asked.get("gap_at_most"),
            )
        )
    for asked in parameters["generated"]:
        nodes, regions = asked["num_nodes"], asked["num_regions"]
        problem = generated_cluster(num_nodes=nodes, num_regions=regions, seed=GENERATED_SEED)
        path = folder / f"{nodes}-{regions}.json"
        path.write_text(json.dumps(problem_to_dict(problem)), encoding="utf-8")
        ratio = asked.get("ratio_at_least")
        found.append(
            Case(
                name=f"{nodes} nodes in {regions} regions",
                path=path,
                within_s=asked["within_s"],
                max_hops=None,
                flow_at_least=None
                if ratio is None
                else ratio * knapsack_bound_tokens_per_s(problem),
                gap_at_most=None,
            )
        )
    return found


def run_command(case: Case, *, seed: int, output: Path) -> float:
    """One run of the command; returns its CPU seconds. Raises CalledProcessError."""
    command = [sys.executable, "-m", "planner", "solve", str(case.path), "--objective", "flow"]
    command += ["--time-limit", str(case.within_s), "--seed", str(seed), "--output", str(output)]
    command += [] if case.max_hops is None else ["--max-hops", str(case.max_hops)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    subprocess.run(command, check=True, capture_output=True, env=environment, cwd=ROOT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def run_by_cpu_clock(case: Case, *, seed: int, output: Path) -> float:
    """The same search in this process, its limit in CPU seconds, for a machine that is not idle."""
    options = PlanOptions(
        objective="flow",
        time_limit_s=case.within_s,
        seed=seed,
        rules=PlacementRules(max_hops=case.max_hops),
    )
    plan = compute_plan(
        read(case.path),
        options=options,
        progress=lambda _: None,
        cancel=NeverCancelled(),
        clock=time.process_time,
    )
    output.write_text(json.dumps(plan_to_dict(plan)), encoding="utf-8")
    return plan.elapsed_s


def checked(case: Case, *, output: Path, cpu_s: float) -> Result:
    """The plan that was written, its flow computed again."""
    plan = plan_from_text(output.read_text(encoding="utf-8"), name_hint=str(output))
    ranges = {name: (held.first, held.end) for name, held in plan.placement.layers.items()}
    problem = read(case.path)
    if len(ranges) > MOST_NODES_FOR_NETWORKX or case.max_hops is not None:
        graph = build_flow_graph(
            problem, plan.placement, partial_inference=True, max_hops=case.max_hops
        )
        flow = solve_linear_flow(graph, ()).value_tokens_per_s
    else:
        flow = flow_by_preflow_push(json.loads(case.path.read_text(encoding="utf-8")), ranges)
    if not nearly_equal(flow, plan.flow.value_tokens_per_s):
        raise ValueError(
            f"{case.name}: the plan says {plan.flow.value_tokens_per_s} tokens/s, but {flow} is "
            "what its placement carries"
        )
    return Result(
        flow_tokens_per_s=flow,
        bound_tokens_per_s=plan.upper_bound_tokens_per_s,
        elapsed_s=plan.elapsed_s,
        cpu_s=cpu_s,
    )


def flow_by_preflow_push(document: dict[str, Any], ranges: dict[str, tuple[int, int]]) -> float:
    """The max flow of a placement of a problem document, with partial inference (Helix 4.3, 4.4).

    Node j follows node i if first_j <= end_i < end_j.
    """
    model, network = document["model"], document["network"]
    nodes = {node["name"]: node for node in document["nodes"]}
    region_of = {name: node["region"] for name, node in nodes.items()}
    region_of["coordinator"] = document["coordinator"]["region"]
    by_names = {
        (link["source"], link["target"]): link["bandwidth_bytes_per_s"] for link in network["links"]
    }
    by_regions = {
        (link["source"], link["target"]): link["bandwidth_bytes_per_s"]
        for link in network["region_pairs"]
    }

    def capacity(source: str, target: str) -> float:
        bandwidth = by_names.get(
            (source, target), by_regions.get((region_of[source], region_of[target]), 0.0)
        )
        ends = "coordinator" in (source, target)
        return float(bandwidth / model["token_bytes" if ends else "activation_bytes_per_token"])

    graph: nx.DiGraph[Any] = nx.DiGraph()
    graph.add_nodes_from(["source", "sink"])
    for name, (first, end) in ranges.items():
        profile = document["compute_profiles"][nodes[name]["compute_profile"]]
        graph.add_edge(
            ("in", name), ("out", name), capacity=float(profile["tokens_per_s"][end - first - 1])
        )
        if first == 0:
            graph.add_edge("source", ("in", name), capacity=capacity("coordinator", name))
        if end == model["num_layers"]:
            graph.add_edge(("out", name), "sink", capacity=capacity(name, "coordinator"))
        for other, (other_first, other_end) in ranges.items():
            if other_first <= end < other_end:
                graph.add_edge(("out", name), ("in", other), capacity=capacity(name, other))
    return float(nx.maximum_flow_value(graph, "source", "sink", flow_func=preflow_push))


def row(case: Case, seed: int, result: Result, *, knapsack: float) -> str:
    asked = case.flow_at_least is not None or case.gap_at_most is not None
    verdict = ("yes" if result.meets(case) else "NO") if asked else "-"
    return (
        f"{case.name:<36}{seed:>5}{result.flow_tokens_per_s:>10.1f}"
        f"{result.flow_tokens_per_s / knapsack:>7.3f}{result.bound_tokens_per_s:>10.1f}"
        f"{result.gap:>8.2%}{result.elapsed_s:>9.1f}{result.cpu_s:>7.1f}  {verdict}"
    )


def read(path: Path) -> Problem:
    return problem_from_text(path.read_text(encoding="utf-8"), name_hint=str(path))


if __name__ == "__main__":
    sys.exit(main())
