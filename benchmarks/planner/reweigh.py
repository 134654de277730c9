"""How long routing weights take to follow a link that does other than planned, in CPU time.

    OMP_NUM_THREADS=1 python -m benchmarks.planner.reweigh PROBLEM.json ... [--share 0.4]

Plans, then slows every link between two nodes that carries flow, one at a time, and weighs again.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

from planner.domain.cluster import SINK, SOURCE
from planner.placers.base import NeverCancelled
from planner.plan_options import PlanOptions
from planner.planning import compute_plan
from planner.reweigh import reweigh
from planner.serialization import problem_from_text

PERCENTILE = 0.95


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problems", type=Path, nargs="+", metavar="PROBLEM")
    parser.add_argument("--seconds", type=float, default=10.0, help="for the plan")
    parser.add_argument("--share", type=float, default=0.4, help="of its rate that a link keeps")
    parser.add_argument("--seed", type=int, default=0)
    parsed = parser.parse_args()
    for path in parsed.problems:
        problem = problem_from_text(path.read_text(), name_hint=str(path))
        plan = compute_plan(
            problem,
            options=PlanOptions(objective="flow", time_limit_s=parsed.seconds, seed=parsed.seed),
            progress=lambda _: None,
            cancel=NeverCancelled(),
            clock=time.process_time,
        )
        took_s, shares = [], []
        for edge in plan.flow.edges:
            if edge.flow_tokens_per_s <= 0 or edge.source == SOURCE or edge.target == SINK:
                continue
            link = problem.cluster.link_between(edge.source, edge.target)
            if link is None:
                continue
            began_s = time.process_time()
            found = reweigh(
                problem,
                plan,
                {(edge.source, edge.target): parsed.share * link.bandwidth_bytes_per_s},
            )
            took_s.append(time.process_time() - began_s)
            shares.append(found.flow_tokens_per_s / plan.flow.value_tokens_per_s)
        took_s.sort()
        print(
            f"{problem.name}: {len(problem.cluster.nodes)} nodes, {len(took_s)} links slowed to "
            f"{parsed.share:.0%}: median {1e3 * statistics.median(took_s):.1f}, p95 "
            f"{1e3 * took_s[int(PERCENTILE * len(took_s))]:.1f}, longest {1e3 * took_s[-1]:.1f} ms "
            f"of CPU; flow kept {min(shares):.3f} at least, {statistics.mean(shares):.3f} mean",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
