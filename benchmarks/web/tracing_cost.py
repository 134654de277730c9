"""What traces of requests cost in throughput, on the demo under load.

    python -m benchmarks.web.tracing_cost [--pairs N] [--seconds N] [--streams N] [--folder DIR]

The coordinator is started with and without traces (`--traces-per-s 0`) in turns; each time the same
number of streams runs for a while. Compared are CPU seconds of coordinator and stages for each
output token, which a busy machine disturbs less than tokens per second, printed beside them.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import psutil

from benchmarks.web.chatting import Chatters
from benchmarks.web.demo_site import DemoSite, running_demo
from helixweb.demo.local_cluster import TINY

WARM_UP_S = 4.0
WANTED = 0.01


def main() -> int:
    arguments = _arguments()
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="helixweb-tracing-"))
    print(f"data and logs: {folder}")
    ratios = []
    with running_demo(folder) as demo:
        for number in range(arguments.pairs):
            found = {}
            for options in ((), ("--traces-per-s", "0"))[:: 1 if number % 2 else -1]:
                demo.restart_coordinator(*options)
                found[bool(options)] = _measured(demo, arguments)
            ratios.append(found[False][0] / found[True][0] - 1)
            print(
                f"pair {number}: CPU ms a token {1e3 * found[False][0]:.3f} with traces, "
                f"{1e3 * found[True][0]:.3f} without ({ratios[-1]:+.2%}); tokens/s "
                f"{found[False][1]:.1f} and {found[True][1]:.1f}",
                flush=True,
            )
    mean, spread = statistics.mean(ratios), statistics.stdev(ratios) if len(ratios) > 1 else 0.0
    error = spread / len(ratios) ** 0.5
    print(
        f"traces cost {mean:+.2%} of CPU time a token, standard error {error:.2%} "
        f"(wanted: at most {WANTED:.0%})"
    )
    return 0 if mean <= WANTED else 1


def _measured(demo: DemoSite, arguments: argparse.Namespace) -> tuple[float, float]:
    """(CPU seconds a token, tokens/s)."""
    processes = [
        psutil.Process(demo.coordinator.process.pid),
        *(demo.stage(node.name) for node in TINY.nodes),
    ]
    with Chatters(
        demo.coordinator_url, key=demo.key, model=demo.model, streams=arguments.streams,
        max_tokens=48, prompt_words=12,
    ) as chatters:  # fmt: skip
        time.sleep(WARM_UP_S)
        began, tokens, spent = time.monotonic(), chatters.tokens, _cpu_s(processes)
        time.sleep(arguments.seconds)
        made = chatters.tokens - tokens
        return (_cpu_s(processes) - spent) / made, made / (time.monotonic() - began)


def _cpu_s(processes: list[psutil.Process]) -> float:
    times = [process.cpu_times() for process in processes]
    return sum(each.user + each.system for each in times)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.web.tracing_cost")
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--streams", type=int, default=12)
    parser.add_argument("--folder", type=Path, help="for data and logs (default: a temporary one)")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
