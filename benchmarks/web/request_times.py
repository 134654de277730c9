"""Do the parts of traced requests add up to their end-to-end times, on the demo under load?

    python -m benchmarks.web.request_times [--seconds N] [--streams N] [--folder DIR]

Reads every trace of the load from the REST API, as the page of a request shows it. Printed are how
far the sum of the parts is from the end-to-end time at worst, and how much of the time is of parts
that was not measured. Exit code 1: a complete request is 2 % or more off.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.web.chatting import Chatters
from benchmarks.web.demo_site import DemoSite, running_demo

MOST_OFF = 0.02
# Traces come with the coordinator's reports, some time after their requests.
LINGER_S = 8.0


def main() -> int:
    arguments = _arguments()
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="helixweb-requests-"))
    print(f"data and logs: {folder}")
    with running_demo(folder) as demo:
        with Chatters(
            demo.coordinator_url, key=demo.key, model=demo.model, streams=arguments.streams,
            max_tokens=48, prompt_words=12,
        ) as chatters:  # fmt: skip
            time.sleep(arguments.seconds)
        time.sleep(LINGER_S)
        traces = list(_traces(demo))
    complete = [trace for trace in traces if trace["outcome"] in ("stop", "length")]
    off = sorted(abs(_explained(trace) - 1.0) for trace in complete)
    unmeasured = sum(_seconds(trace, "unmeasured") for trace in complete)
    whole = sum(trace["e2e_s"] for trace in complete)
    print(
        f"{chatters.answers} answers, {chatters.tokens} tokens; {len(traces)} traced, "
        f"{len(complete)} of them complete\n"
        f"parts ÷ end to end: off by {off[-1]:.4%} at worst, "
        f"{off[len(off) // 2]:.4%} in the median (wanted: below {MOST_OFF:.0%})\n"
        f"not measured: {unmeasured / whole:.2%} of the time"
    )
    return 0 if off[-1] < MOST_OFF else 1


def _traces(demo: DemoSite) -> Any:
    offset = 0
    while rows := demo.site.get("requests/", offset=offset, limit=100)["results"]:
        for row in rows:
            yield demo.site.get(f"requests/{row['request']}/")
        offset += len(rows)


def _explained(trace: dict[str, Any]) -> float:
    return sum(part["seconds"] for part in trace["parts"]) / trace["e2e_s"]


def _seconds(trace: dict[str, Any], kind: str) -> float:
    return sum(part["seconds"] for part in trace["parts"] if part["kind"] == kind)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.web.request_times")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--streams", type=int, default=12)
    parser.add_argument("--folder", type=Path, help="for data and logs (default: a temporary one)")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
